"""Regularizers at equal cost: recall and evenness against multiply-adds per row.

Encoders that were trained for the same FLOPs per row with different penalties (--target_flops), one
column per way of training them.
"""

from matplotlib.figure import Figure

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import drawing, measures, selection
from sparse_embed.experiments.reporting.figures.tradeoff import describe
from sparse_embed.experiments.reporting.selection import Group

TARGET = "target_flops"


def points(records: list[Record]) -> list[Group]:
    """Returns the groups shown, by rising cost."""
    found = selection.sparse_identification(records)
    found = [record for record in found if TARGET in record["setting"]]
    found = selection.needed(found, "encoders trained for given FLOPs per row")
    shown = selection.groups(selection.most_seeds(found))
    return sorted(shown, key=lambda group: group["flops_per_row"])


def draw(records: list[Record]) -> Figure:
    """Draws recall alone, recall re-ranked, and the sub-optimality ratio below each other."""
    shown = points(records)
    architectures = selection.values(shown, "architecture")
    figure, axes = drawing.new_figure(len(architectures), 3, height=3.0)
    for column, architecture in zip(axes.T, architectures, strict=True):
        part = selection.select(shown, architecture=architecture)
        alone, reranked = (selection.select(part, reranked=kind) for kind in (False, True))
        for method, look in drawing.methods(shown):
            for axis, side in zip(column, (alone, reranked, alone), strict=True):
                curve = selection.select(side, method=method)
                costs = [group["flops_per_row"] for group in curve]
                if axis is column[2]:
                    found = [measures.per_seed(group, "suboptimality_ratio") for group in curve]
                else:
                    found = [measures.recall(group) for group in curve]
                means = [interval.mean for interval in found]
                axis.plot(costs, means, f"-{look.marker}", color=look.colour, label=look.label)
                drawing.band(axis, costs, found, look.colour)
        for axis, label in zip(
            column,
            ("recall@1, sparse alone", "recall@1, re-ranked", "sub-optimality ratio"),
            strict=True,
        ):
            drawing.logarithmic(axis)
            axis.set(xlabel="multiply-adds per row", ylabel=label)
        column[0].set_title(architecture)
    drawing.legend_below(figure, axes[0][0])
    return figure


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, its data, and when it was measured."""
    shown = points(records)
    return (
        "Encoders trained for given FLOPs per row with each regularizer, from one dense run per "
        "seed: recall@1 of sparse search alone and re-ranked, and how evenly the non-zeros are "
        f"spread (1 is the best). {describe(shown)} Points are means over seeds, bands 95% "
        "intervals over seeds and, for recall, classes of probes. "
        f"{selection.origin(selection.records_of(*shown))}"
    )
