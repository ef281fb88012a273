"""The figures of the paper: one module each, with `draw` and `caption`, functions of the records.

To add one, write such a module and give it a row in `FIGURES`; the report
then has it.
"""

from typing import Any, NamedTuple

from sparse_embed.experiments.reporting.figures import (
    cdf,
    cifar100,
    regularizers,
    rerank,
    roc,
    suboptimality,
    tradeoff,
    trajectory,
    truncation,
)


class Entry(NamedTuple):
    """A figure.

    Attributes:
        title: its heading in the report.
        module: has `draw(records) -> Figure` and `caption(records) -> str`, both of which raise
            `NotMeasured` if they have no records to show.
    """

    title: str
    module: Any


FIGURES = {
    "cdf": Entry("Figure 2a: activations and rectified Gaussians", cdf),
    "trajectory": Entry("Figure 2b: the effect of the regularizers on two activations", trajectory),
    "tradeoff": Entry("Figures 3a and 3c: time per query and recall", tradeoff),
    "suboptimality": Entry("Figures 3b and 3d: how evenly the non-zeros are spread", suboptimality),
    "rerank": Entry("Appendix: with and without re-ranking", rerank),
    "truncation": Entry("Beyond the paper: one encoder, every budget", truncation),
    "regularizers": Entry("Beyond the paper: regularizers at equal cost", regularizers),
    "roc": Entry("Appendix: verification", roc),
    "cifar100": Entry("Appendix: CIFAR-100", cifar100),
}
