"""Figures 3b and 3d: sub-optimality ratio against sparsity, one panel per architecture.

R_sub = F / (d p^2), where p is the mean activation probability: 1 if the non-zeros are spread
evenly over the dimensions, more if not (section 5).
"""

from matplotlib.figure import Figure

from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.reporting import drawing, selection
from sparse_embed.experiments.reporting.figures.tradeoff import describe


def points(records: list[Record]) -> list[Record]:
    """Returns the records shown, by rising activation probability."""
    found = selection.sparse_identification(records, reranked=False)
    return sorted(found, key=lambda record: record["activation_probability"])


def draw(records: list[Record]) -> Figure:
    """Draws a curve for each regularizer, a point for each weight."""
    shown = points(records)
    figure, panels = drawing.panels(shown)
    for axis, part in panels:
        for method, look in drawing.methods(shown):
            curve = selection.select(part, method=method)
            drawing.plot(
                axis,
                curve,
                "activation_probability",
                "suboptimality_ratio",
                "-" + look.marker,
                color=look.colour,
                label=look.label,
            )
        axis.axhline(1, color="#7F7F7F", linestyle=":", label="evenly spread")
        axis.set(
            xlabel="mean activation probability (sparser to the left)",
            ylabel="sub-optimality ratio",
        )
        axis.locator_params(axis="x", nbins=5)
    drawing.legend_below(figure, panels[0][0])
    return figure


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, its data, and when it was measured."""
    shown = points(records)
    return (
        "Sub-optimality ratio F / (d p²) of the embeddings searched, against their mean "
        f"activation probability p; 1 is the best possible. {describe(shown)} "
        f"{selection.origin(shown)}"
    )
