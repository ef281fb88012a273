"""Appendix, "Results without re-ranking": the sparse methods with and without the second stage.

Each regularizer has one colour; diamonds are re-ranked, triangles are not.
"""

from matplotlib.figure import Figure

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import drawing, selection
from sparse_embed.experiments.reporting.figures.tradeoff import (
    AXES,
    BARS,
    describe,
    draw_curve,
)
from sparse_embed.experiments.reporting.selection import TIME, Group


def points(records: list[Record]) -> list[Group]:
    """Returns the groups shown, by rising time: timed, among the most distractors."""
    found = selection.timed(selection.sparse_identification(records))
    found = selection.needed(found, "timed identification by sparse codes")
    return sorted(selection.groups(found), key=lambda group: group[TIME])


def draw(records: list[Record]) -> Figure:
    """Draws diamonds with and triangles without re-ranking, as the paper does."""
    shown = points(records)
    figure, panels = drawing.panels(shown)
    for axis, part in panels:
        for method, look in drawing.methods(shown):
            for reranked, marker, line, word in (
                (True, "D", "-", "re-ranked"),
                (False, "^", "--", "alone"),
            ):
                curve = selection.select(part, method=method, reranked=reranked)
                label = f"{look.label}, {word}"
                draw_curve(axis, curve, line + marker, color=look.colour, label=label)
        drawing.logarithmic(axis)
        axis.set(**AXES)
    drawing.legend_below(figure, panels[0][0])
    return figure


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, its data, and when it was measured."""
    shown = points(records)
    return (
        "Recall@1 and time per query of the sparse methods, with (diamonds) and without "
        f"(triangles) re-ranking by dense embeddings. {describe(shown)} {BARS} "
        f"{selection.origin(selection.records_of(*shown))}"
    )
