"""Appendix, "FPR and TPR curves": verification of pairs at every threshold.

    python -m sparse_embed.experiments.figure_roc --run_dir=runs/reproduce/quick

Pairs are scored by the dot product of their embeddings, sparse ones without re-ranking.
"""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from sparse_embed.experiments import figures
from sparse_embed.experiments.records import Record
from sparse_embed.flags import app
from sparse_embed.retrieval.pair_verification import roc

NAME = "roc"
# Shades of one hue per regularizer, dark is sparse; with the line they differ in grey too.
SHADES = {"flops": ("Blues", "-"), "l1": ("Oranges", "--")}


def points(run: list[Record]) -> list[Record]:
    """Returns the records shown, the sparsest last."""
    found = figures.needed(
        run, "verification", experiment="verification", method=("dense", "flops", "l1")
    )
    return sorted(found, key=lambda record: -record.get("activation_probability", 1.0))


def draw(run: list[Record]) -> Figure:
    """Draws a panel per architecture and data set, a curve per encoder."""
    shown = points(run)
    architectures, sets = figures.values(shown, "architecture"), figures.values(shown, "data")
    figure, axes = figures.new_figure(len(sets), len(architectures))
    for row, architecture in zip(axes, architectures, strict=True):
        for axis, data in zip(row, sets, strict=True):
            for method in ("dense", *SHADES):
                curves = figures.select(shown, architecture=architecture, data=data, method=method)
                for place, record in enumerate(curves):
                    _draw_curve(axis, record, (place + 1) / len(curves))
            axis.set(
                title=f"{architecture}, {data}",
                xscale="log",
                xlabel="false positive rate",
                ylabel="true positive rate",
            )
            axis.legend(fontsize=7, loc="lower right", frameon=False)
    return figure


def _draw_curve(axis: Any, record: Record, darkness: float) -> None:
    raw = figures.arrays(record)
    same = raw["same"].astype(bool)
    _, fpr, tpr = roc(raw["scores"], same)
    label, line = figures.LOOKS[record["method"]].label, ":"
    colour: Any = "#000000"
    if record["method"] in SHADES:
        map_name, line = SHADES[record["method"]]
        colour = matplotlib.colormaps[map_name](0.4 + 0.5 * darkness)
        label += f", p={record['activation_probability']:.3f}"
    least = 1 / np.count_nonzero(~same)  # the axis is logarithmic: zero is drawn here
    axis.plot(np.maximum(fpr, least), tpr, line, color=colour, label=label)


def caption(run: list[Record]) -> str:
    """Says what is shown, on what data and by which run."""
    shown = points(run)
    pairs = ", ".join(f"{count:,}" for count in figures.values(shown, "pairs"))
    return (
        "True positive rate against false positive rate of verification by the dot product, "
        "without re-ranking; p is the mean activation probability. Data: "
        f"{', '.join(figures.values(shown, 'data'))}, {pairs} pairs each. {figures.origin(shown)}"
    )


main = figures.main_of(NAME, draw, caption)

if __name__ == "__main__":
    app.run(main)
