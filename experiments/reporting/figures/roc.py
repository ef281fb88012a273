"""Appendix, "FPR and TPR curves": verification of pairs at every threshold.

Pairs are scored by the dot product of their embeddings, sparse ones without re-ranking.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import drawing, selection
from sparse_embed.retrieval.pair_verification import roc

LINES = ("-", "--", "-.", (0, (1, 1)))  # of the regularizers, to tell them apart in grey too


def points(records: list[Record]) -> list[Record]:
    """Returns the records shown, the sparsest last; of several seeds, the first of each encoder."""
    found = selection.needed(records, "verification", experiment="verification")
    found = [selection.records_of(group)[0] for group in selection.groups(found)]
    return sorted(found, key=lambda record: -record.get("activation_probability", 1.0))


def draw(records: list[Record]) -> Figure:
    """Draws a panel per architecture and data set, a curve per encoder."""
    shown = points(records)
    architectures, sets = selection.values(shown, "architecture"), selection.values(shown, "data")
    figure, axes = drawing.new_figure(len(sets), len(architectures))
    for row, architecture in zip(axes, architectures, strict=True):
        for axis, data in zip(row, sets, strict=True):
            part = selection.select(shown, architecture=architecture, data=data)
            lines = iter(LINES * len(part))
            for method, _ in drawing.methods(part):
                curves = selection.select(part, method=method)
                line = ":" if method == "dense" else next(lines)
                for place, record in enumerate(curves):
                    _draw_curve(axis, record, line, (place + 1) / len(curves))
            axis.set(
                title=f"{architecture}, {data}",
                xscale="log",
                xlabel="false positive rate",
                ylabel="true positive rate",
            )
            if part:  # an architecture need not have every set
                axis.legend(fontsize=7, loc="lower right", frameon=False)
    return figure


def _draw_curve(axis: Any, record: Record, line: Any, darkness: float) -> None:
    """Draws one encoder's curve in a shade of its method's colour: dark is sparse."""
    raw = selection.arrays(record)
    same = raw["same"].astype(bool)
    _, fpr, tpr = roc(raw["scores"], same)
    look = drawing.look(record["method"])
    label, colour = look.label, look.colour
    if "activation_probability" in record:
        label += f", p={record['activation_probability']:.3f}"
        colour = drawing.shade(colour, darkness)
    least = 1 / np.count_nonzero(~same)  # the axis is logarithmic: zero is drawn here
    axis.plot(np.maximum(fpr, least), tpr, linestyle=line, color=colour, label=label)


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, its data, and when it was measured."""
    shown = points(records)
    pairs = ", ".join(f"{count:,}" for count in selection.values(shown, "pairs"))
    return (
        "True positive rate against false positive rate of verification by the dot product, "
        "without re-ranking; p is the mean activation probability. Data: "
        f"{', '.join(selection.values(shown, 'data'))}, {pairs} pairs each. "
        f"{selection.origin(shown)}"
    )
