"""Appendix "Cifar-100 results": precision against multiply-adds per row at every weight tried.

The paper's table has one point of each curve; both are drawn from the records of `cifar100`.
"""

from matplotlib.figure import Figure

from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.reporting import drawing, selection
from sparse_embed.experiments.reporting.cifar100_table import METRICS, OWN, PAPER, SERIES, in_table

ROWS = ("flops", "l1")
PANELS = {
    "precision_at_4_train": "test images among the training images",
    "precision_at_4_test": "test images among each other",
}


def points(records: list[Record]) -> list[Record]:
    """Returns the records shown, by rising cost."""
    what = "CIFAR-100 at several weights"
    models = tuple(series.prefix + row for series in SERIES for row in ROWS)
    found = selection.needed(records, what, experiment="cifar100", model=models)
    return sorted(found, key=lambda record: record["flops_per_row"])


def draw(records: list[Record]) -> Figure:
    """Draws a curve for each regularizer; points in the table are large, the paper's hollow."""
    shown = points(records)
    figure, axes = drawing.new_figure(len(PANELS))
    for axis, (key, title) in zip(axes[0], PANELS.items(), strict=True):
        for name in ROWS:
            look = drawing.look(name)
            curves = [(s, selection.select(shown, model=s.prefix + name)) for s in SERIES]
            for series, curve in curves:
                if not curve:
                    continue
                costs = [record["flops_per_row"] for record in curve]
                percent = [100 * record[key] for record in curve]
                line = ("--" if series is OWN else "-") + look.marker
                style = {"color": look.colour, "fillstyle": "left" if series is OWN else "full"}
                axis.plot(costs, percent, line, **style, label=f"{look.label}, {series.network}")
                if (record := in_table(curve, series.prefix + name)) is not None:
                    place = record["flops_per_row"], 100 * record[key]
                    axis.plot(*place, look.marker, **style, markersize=11)
            if not any(curve for _, curve in curves):
                continue
            row, numbers = PAPER[name]
            paper = dict(zip(METRICS, numbers, strict=True))
            hollow = {"color": look.colour, "markerfacecolor": "none", "markersize": 11}
            place = paper["flops_per_row"], paper[key]
            axis.plot(*place, look.marker, **hollow, label=f"{row}, paper")
        axis.set(title=title, xlabel="multiply-adds per row", ylabel="precision@4, percent")
    drawing.legend_below(figure, axes[0][0])
    return figure


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, and when and on what machine it was measured."""
    return (
        "Precision among the four nearest images without re-ranking, d = 64, against multiply-adds "
        "per row; upper left is better. Each curve is one training run with rising weights of its "
        f"penalty, dashed and half filled with {OWN.network}, the paper's own. Large points are in "
        "the table, chosen on validation images within the paper's cost; hollow points are the "
        f"paper's. {selection.origin(points(records))}"
    )
