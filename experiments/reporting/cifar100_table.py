"""The paper's table of CIFAR-100 (appendix "Cifar-100 results"), and ours beside it.

There are two series of our own: models with the paper's network and loss (the presets
`cifar100_<row>`), and models within a CPU's reach (`cifar100_fast_<row>`).
"""

from typing import NamedTuple

from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.reporting.text_table import text_table

DENSE = "dense"  # the row that others start from
METRICS = (
    "flops_per_row",
    "precision_at_4_train",
    "precision_at_16_train",
    "precision_at_4_test",
    "precision_at_16_test",
)


class PaperRow(NamedTuple):
    """A row of the paper's table: title, and numbers in the order of METRICS, in percent."""

    title: str
    metrics: tuple[float, ...]


PAPER = {
    DENSE: PaperRow("dense", (64, 61.53, 61.26, 57.31, 56.95)),
    "sdh_k1": PaperRow("SDH k=1", (1.18, 62.29, 61.94, 57.22, 55.87)),
    "sdh_k2": PaperRow("SDH k=2", (3.95, 60.93, 60.15, 55.98, 54.42)),
    "sdh_k3": PaperRow("SDH k=3", (8.82, 60.80, 59.96, 55.81, 54.10)),
    "flops": PaperRow("relaxed FLOPs", (0.40, 61.05, 61.08, 55.23, 55.21)),
    "l1": PaperRow("l1", (0.47, 60.50, 60.17, 54.32, 54.96)),
}


class Series(NamedTuple):
    """Our models of all rows: `prefix` and a row's name are a model's name."""

    prefix: str
    network: str

    @property
    def models(self) -> list[str]:
        """Names of the models, in the order of the rows."""
        return [self.prefix + row for row in PAPER]


OWN = Series("", "network in network")  # as in the paper
FAST = Series("fast_", "haarnet")
SERIES = (OWN, FAST)


def by_seed(records: list[Record], name: str) -> dict[int, Record]:
    """Returns the records in the table for a model by the seed of its training run."""
    return {
        record.get("seed", 0): record
        for record in records
        if record["experiment"] == "cifar100" and record["model"] == name and record["chosen"]
    }


def in_table(records: list[Record], name: str) -> Record | None:
    """Returns the record in the table for a model, of its first seed; None if there is none."""
    found = by_seed(records, name)
    return found[min(found)] if found else None


def recorded_series(records: list[Record]) -> list[Series]:
    """Returns the series that have a record in the table."""
    return [
        series
        for series in SERIES
        if any(in_table(records, name) is not None for name in series.models)
    ]


def numbers(record: Record) -> list[float]:
    """Returns a record's columns of the table: F, and precision in percent."""
    flops, *precisions = (record[metric] for metric in METRICS)
    return [flops, *(100 * precision for precision in precisions)]


def table(records: list[Record]) -> str:
    """Returns the paper's table with our results beside it, as text; "-" for a missing record."""
    head = ["model", "F", "train @4", "train @16", "test @4", "test @16", "seconds", "network"]
    rows = [["", *["paper / ours"] * len(METRICS), "ours", "ours"]]
    for series in recorded_series(records) or [FAST]:
        for name, (title, paper) in PAPER.items():
            record = in_table(records, series.prefix + name)
            ours = ["-"] * len(METRICS) if record is None else [f"{n:.2f}" for n in numbers(record)]
            pairs = [f"{a:.2f} / {b}" for a, b in zip(paper, ours, strict=True)]
            seconds = "-" if record is None else f"{record['train_seconds']:.0f}"
            rows.append([title, *pairs, seconds, series.network])
    return text_table(head, rows)
