"""Appendix "Cifar-100 results": precision against multiply-adds per row, and evenness.

The paper's table has one point of each curve; both are drawn from records of `evaluate_cifar100`.
"""

from typing import Any

from matplotlib.figure import Figure

from sparse_embed.experiments.core.paper import METRICS, OWN, PAPER, SERIES, SOFT, Series
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import drawing, measures, selection
from sparse_embed.experiments.reporting.cifar100_table import in_table
from sparse_embed.experiments.reporting.intervals import Interval
from sparse_embed.experiments.reporting.selection import Group

ROWS = ("flops", "l1")
PANELS = {
    "precision_at_4_train": "test images among the training images",
    "precision_at_4_test": "test images among each other",
    "suboptimality_ratio": "evenness",
}
LINES, FILLS = {OWN: "--", SOFT: ":"}, {OWN: "left", SOFT: "none"}


def points(records: list[Record]) -> list[Record]:
    """Returns the records shown."""
    models = tuple(series.prefix + row for series in SERIES for row in ROWS)
    what = "CIFAR-100 at several weights"
    return selection.needed(records, what, experiment="cifar100", model=models)


def draw(records: list[Record]) -> Figure:
    """Draws a curve for each regularizer; points in the table are large, the paper's stars."""
    shown = points(records)
    figure, axes = drawing.new_figure(len(PANELS))
    for axis, (key, title) in zip(axes[0], PANELS.items(), strict=True):
        for row in ROWS:
            drawn = [_curve(axis, shown, series, row, key) for series in SERIES]
            paper = dict(zip(METRICS, PAPER[row].metrics, strict=True))
            if key in paper and any(drawn):
                look = drawing.look(row)
                place, star = (paper["flops_per_row"], paper[key]), {"markersize": 13}
                label = f"{PAPER[row].title}, paper"
                axis.plot(*place, "*", color=look.colour, **star, label=label)
        drawing.logarithmic(axis)
        label = "precision@4, percent" if key in METRICS else "sub-optimality ratio"
        axis.set(title=title, xlabel="multiply-adds per row", ylabel=label)
    drawing.legend_below(figure, axes[0][0])
    return figure


def _curve(axis: Any, shown: list[Record], series: Series, row: str, key: str) -> bool:
    """Draws one curve with its band; returns whether there is one."""
    found = selection.groups(selection.select(shown, model=series.prefix + row))
    curve = sorted(found, key=lambda group: group["flops_per_row"])
    chosen = in_table(shown, series, row)
    if chosen is None:
        return False
    look, scale = drawing.look(row), 100 if key in METRICS else 1

    def scaled(group: Group) -> Interval:
        mean, low, high, seeds = measures.per_seed(group, key)
        return Interval(scale * mean, scale * low, scale * high, seeds)

    costs, values = [group["flops_per_row"] for group in curve], list(map(scaled, curve))
    style = {"color": look.colour, "fillstyle": FILLS.get(series, "full")}
    line = LINES.get(series, "-") + look.marker
    axis.plot(
        costs, [v.mean for v in values], line, **style, label=f"{look.label}, {series.network}"
    )
    drawing.band(axis, costs, values, look.colour)
    place = chosen["flops_per_row"], scale * chosen[key]
    axis.plot(*place, look.marker, **style, markersize=11)
    return True


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, and when and on what machine it was measured."""
    return (
        "Precision among the four nearest images without re-ranking, d = 64, against multiply-adds "
        "per row (upper left is better), and how evenly the non-zeros are spread (1 is the best). "
        "Points are means over seeds of the embedding layer, bands 95% intervals. Large points "
        "are in the table, chosen on validation images within the paper's cost; stars are the "
        f"paper's. {selection.origin(points(records))}"
    )
