"""Figures 3a and 3c: time per query against recall@1, one panel per architecture, all methods.

    python -m sparse_embed.experiments.figure_tradeoff --run_dir=runs/reproduce/quick

Everything that has a shortlist is shown with it re-ranked, and its time includes that.
"""

from typing import Any

from matplotlib.figure import Figure

from sparse_embed.experiments import figures
from sparse_embed.experiments.figures import LOOKS
from sparse_embed.experiments.records import Record
from sparse_embed.flags import app

NAME = "tradeoff"
AXES: Any = {
    "xscale": "log",
    "xlabel": "time per query, ms (one thread)",
    "ylabel": "recall@1",
}
EXACT = ("dense", "hnsw")  # search the dense embeddings themselves: nothing to re-rank


def points(run: list[Record], what: str = "identification") -> list[Record]:
    """Returns the records shown, each method's by rising time."""
    found = [
        record
        for record in figures.needed(run, what, experiment="megaface")
        if record["reranked"] != (record["method"] in EXACT) and record["method"] in LOOKS
    ]
    return sorted(found, key=lambda record: record["milliseconds_per_query"])


def draw(run: list[Record]) -> Figure:
    """Draws a curve for each method, a point for each of its settings."""
    shown = points(run)
    figure, panels = figures.panels(shown, width=5.2, height=4.2)
    for axis, part in panels:
        for method, look in LOOKS.items():
            curve = figures.select(part, method=method)
            if curve:
                figures.plot(
                    axis,
                    curve,
                    "milliseconds_per_query",
                    "recall_at_1",
                    "-" + look.marker,
                    color=look.colour,
                    label=look.label,
                    markersize=11 if method == "dense" else 6,
                    linewidth=1.2,
                    zorder=3 if method == "flops" else 2,
                )
        axis.set(**AXES)
    figures.legend_below(figure, panels[0][0])
    return figure


def caption(run: list[Record]) -> str:
    """Says what is shown, on what data and by which run."""
    shown = points(run)
    return (
        "Time per query (median, one thread, re-ranking included) against recall@1; upper left is "
        f"better. {describe(shown)} {figures.origin(shown)}"
    )


def describe(shown: list[Record]) -> str:
    """Returns what was searched for, and among what."""
    first = shown[0]
    return (
        f"Data: {first['data']}, {first['probes']:,} probes of unseen classes among "
        f"{first['distractors']:,} distractors."
    )


main = figures.main_of(NAME, draw, caption)

if __name__ == "__main__":
    app.run(main)
