"""The tables behind `--regularizer` and `--loss`: one row each, found by name everywhere.

Rows of this package name their class, which is imported when it is used: figures need only looks.
"""

import dataclasses
import importlib

from sparse_embed.common.looks import Look


def _resolved(kind: type | str) -> type:
    if isinstance(kind, type):
        return kind
    found: type = getattr(importlib.import_module(__package__), kind)
    return found


@dataclasses.dataclass(frozen=True)
class Regularizer:
    """A sparsity penalty.

    Attributes:
        kind: subclass of `ActivationRegularization`, or its name in this package; made with
            (weight, scope=...); an argument named like a flag gets the flag's value.
        look: how its embeddings are shown in figures.
    """

    kind: type | str
    look: Look

    @property
    def layer(self) -> type:
        """The class."""
        return _resolved(self.kind)


@dataclasses.dataclass(frozen=True)
class MetricLoss:
    """A metric loss.

    Attributes:
        kind: class of the loss, or its name in this package; an argument named like a flag gets the
            flag's value.
        takes: "embeddings", or "cosines" between them and the classes, see `models.ArcFaceHead`.
        compilable: whether XLA can compile it.
    """

    kind: type | str
    takes: str = "embeddings"
    compilable: bool = True

    @property
    def loss(self) -> type:
        """The class."""
        return _resolved(self.kind)


REGULARIZERS = {
    "flops": Regularizer("FlopsRegularization", Look("relaxed FLOPs (ours)", "#0072B2", "o")),
    "l1": Regularizer("L1Regularization", Look("l1", "#D55E00", "s")),
    "df_flops": Regularizer("DFFlopsRegularization", Look("DF-FLOPS", "#009E73", "^")),
    "masked_flops": Regularizer("MaskedFlopsRegularization", Look("l0 mask", "#CC79A7", "v")),
}
LOSSES = {
    "arcface": MetricLoss("ArcFaceLoss", takes="cosines"),
    "sdh": MetricLoss("SDHLoss", compilable=False),  # its solver runs on the host
    "triplet": MetricLoss("TripletSemiHardLoss"),
}
