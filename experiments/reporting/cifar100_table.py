"""The paper's table of CIFAR-100 with ours beside it, from records."""

from typing import NamedTuple

import numpy as np

from sparse_embed.experiments.core.paper import FAST, METRICS, PAPER, SERIES, Series
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.reporting import selection
from sparse_embed.experiments.reporting.selection import Group


def in_table(records: list[Record], series: Series, row: str) -> Group | None:
    """Returns the records in the table for a row, one per seed; None if there is none.

    Of the encoders of a seed it is the one with the best recall@1 of the validation images among
    those whose FLOPs per row on them are within the paper's; if none is, the sparsest. Test images
    have no part in the choice.
    """
    found = selection.select(records, experiment="cifar100", model=series.prefix + row)
    seeds = sorted({selection.seed(record) for record in found})
    by_seed = {seed: [r for r in found if selection.seed(r) == seed] for seed in seeds}
    most = PAPER[row].metrics[0]
    return Group({s: _chosen(some, most) for s, some in by_seed.items()}) if seeds else None


def _chosen(records: list[Record], most_flops: float) -> Record:
    """Returns the record that stands for some encoders of one model and seed."""
    if len(records) == 1:
        return records[0]

    def flops(record: Record) -> float:
        cost: float = record["curve"][-1]["evaluation_flops_per_row"]
        return cost

    within = [record for record in records if flops(record) <= most_flops]
    if not within:
        return min(records, key=flops)
    return max(within, key=lambda record: record["curve"][-1]["recall_at_1"])


def recorded_series(records: list[Record]) -> list[Series]:
    """Returns the series that have a record."""
    models = {r["model"] for r in selection.select(records, experiment="cifar100")}
    return [series for series in SERIES if models & set(series.models)]


class Number(NamedTuple):
    """Mean and standard deviation over seeds; the latter is None if there is one seed."""

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f"±{self.deviation:.2f}"
        return f"{self.mean:.2f}{spread}"


def numbers(group: Group) -> list[Number]:
    """Returns the columns of the table: F, and precision in percent."""
    found = []
    for metric in METRICS:
        scale = 1 if metric == METRICS[0] else 100
        values = [scale * record[metric] for record in selection.records_of(group)]
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        found.append(Number(float(np.mean(values)), deviation))
    return found


def table(records: list[Record]) -> str:
    """Returns the paper's table with our results beside it, as text; "-" for a missing record.

    Where there are several seeds, ours are mean and standard deviation over them.
    """
    head = ["model", "F", "train @4", "train @16", "test @4", "test @16", "seeds", "seconds"]
    rows = [["", *["paper / ours"] * len(METRICS), "ours", "ours", "ours"]]
    for series in recorded_series(records) or [FAST]:
        for row in series.rows:
            title, paper = PAPER[row]
            group = in_table(records, series, row)
            ours = ["-"] * len(METRICS) if group is None else list(map(str, numbers(group)))
            pairs = [f"{a:.2f} / {b}" for a, b in zip(paper, ours, strict=True)]
            seconds = "-" if group is None else f"{group['train_seconds']:.0f}"
            seeds = "-" if group is None else str(len(group.records))
            rows.append([title, *pairs, seeds, seconds, series.network])
    return text_table([*head, "network"], rows)
