"""Figures 3a and 3c: time per query against recall@1, one panel per architecture, all methods.

Methods with a shortlist are shown with re-ranking, which their time includes.
"""

from typing import Any

from matplotlib.figure import Figure

from sparse_embed.experiments.core.records import Record, is_cut
from sparse_embed.experiments.reporting import drawing, measures, selection
from sparse_embed.experiments.reporting.selection import TIME, Group

BARS = "Points are means over seeds, bars 95% intervals over seeds and classes of probes."
AXES: Any = {
    "xlabel": "time per query, ms (one thread)",
    "ylabel": "recall@1",
}


def points(records: list[Record], what: str = "timed identification") -> list[Group]:
    """Returns the groups shown, each method's by rising time: timed, among the most distractors.

    Those are the re-ranked ones, if the method has any: a search of the dense embeddings themselves
    has nothing to re-rank.
    """
    found = selection.timed(selection.select(records, experiment="megaface"))
    found = selection.needed(found, what)
    two_stage = {record["method"] for record in found if record["reranked"]}
    shown = [record for record in found if record["reranked"] == (record["method"] in two_stage)]
    return sorted(selection.groups(shown), key=lambda group: group[TIME])


def draw(records: list[Record]) -> Figure:
    """Draws a curve for each method, a point for each of its settings."""
    shown = points(records)
    figure, panels = drawing.panels(shown, width=5.2, height=4.2)
    for axis, part in panels:
        for method, look in drawing.methods(part):
            for number, curve in enumerate(curves(selection.select(part, method=method))):
                draw_curve(
                    axis,
                    curve,
                    ("--" if is_cut(curve[0]) else "-") + look.marker,
                    color=look.colour,
                    label="_nolegend_" if number else look.label,
                    markersize=11 if method == "dense" else 6,
                    linewidth=1.2,
                    zorder=3 if method == "flops" else 2,
                )
        drawing.logarithmic(axis)
        axis.set(**AXES)
    drawing.legend_below(figure, panels[0][0])
    return figure


def curves(found: list[Group]) -> list[list[Group]]:
    """Returns the settings of a method as curves: one, but one per encoder that was cut."""
    whole = [group for group in found if not is_cut(group)]
    runs: dict[str, list[Group]] = {}
    for group in filter(is_cut, found):
        runs.setdefault(str(group["setting"].get("run")), []).append(group)
    return [curve for curve in (whole, *(runs[run] for run in sorted(runs))) if curve]


def draw_curve(axis: Any, curve: list[Group], line: str, **look: Any) -> None:
    """Draws recall@1 of some groups, with its intervals, against their time."""
    drawing.plot(axis, curve, TIME, "recall_at_1", line, **look)
    found = [measures.recall(group) for group in curve]
    drawing.bars(axis, [group[TIME] for group in curve], found, look["color"])


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, its data, and when it was measured."""
    shown = points(records)
    return (
        "Time per query (median, one thread, re-ranking included) against recall@1; upper left is "
        f"better. {describe(shown)} {BARS} {selection.origin(selection.records_of(*shown))}"
    )


def describe(shown: list[Group]) -> str:
    """Describes the probes, the rows that they were searched among, and the seeds."""
    first = shown[0]
    return (
        f"Data: {first['data']}, {first['probes']:,} probes of unseen classes among "
        f"{measures.circumstances(shown)}."
    )
