"""Figures 3b and 3d: sub-optimality ratio against sparsity, one panel per architecture.

R_sub = F / (d p^2), where p is the mean activation probability: 1 if the non-zeros are spread
evenly over the dimensions, more if not (section 5).
"""

from matplotlib.figure import Figure

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import drawing, measures, selection
from sparse_embed.experiments.reporting.figures.tradeoff import describe
from sparse_embed.experiments.reporting.selection import Group


def points(records: list[Record], *methods: str) -> list[Group]:
    """Returns the groups shown, by rising activation probability.

    Args:
        records: of a reproduction.
        *methods: a seed counts if all of these have it, where there are several numbers of
            distractors; see `selection.most_seeds`.
    """
    found = selection.sparse_identification(records, reranked=False)
    found = selection.most_seeds(found, *methods)
    return sorted(selection.groups(found), key=lambda group: group["activation_probability"])


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
            found = [measures.per_seed(group, "suboptimality_ratio") for group in curve]
            drawing.bars(
                axis, [group["activation_probability"] for group in curve], found, look.colour
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
        f"Points are means over seeds, bars 95% intervals over seeds. "
        f"{selection.origin(selection.records_of(*shown))}"
    )
