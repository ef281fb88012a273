"""The paper's table of CIFAR-100 (appendix "Cifar-100 results"), and ours beside it."""

from typing import NamedTuple

from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.reporting.text_table import text_table

DENSE = "fast_dense"  # the run that all others start from
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


# Name of our run -> the paper's row.
PAPER = {
    DENSE: PaperRow("dense", (64, 61.53, 61.26, 57.31, 56.95)),
    "fast_sdh_k1": PaperRow("SDH k=1", (1.18, 62.29, 61.94, 57.22, 55.87)),
    "fast_sdh_k2": PaperRow("SDH k=2", (3.95, 60.93, 60.15, 55.98, 54.42)),
    "fast_sdh_k3": PaperRow("SDH k=3", (8.82, 60.80, 59.96, 55.81, 54.10)),
    "fast_flops": PaperRow("relaxed FLOPs", (0.40, 61.05, 61.08, 55.23, 55.21)),
    "fast_l1": PaperRow("l1", (0.47, 60.50, 60.17, 54.32, 54.96)),
}


def in_table(records: list[Record], name: str) -> Record | None:
    """Returns the record in the table for a model; None if there is none."""
    found = [
        record
        for record in records
        if record["experiment"] == "cifar100" and record["model"] == name and record["chosen"]
    ]
    return found[0] if found else None


def numbers(record: Record) -> list[float]:
    """Returns a record's columns of the table: F, and precision in percent."""
    flops, *precisions = (record[metric] for metric in METRICS)
    return [flops, *(100 * precision for precision in precisions)]


def table(records: list[Record]) -> str:
    """Returns the paper's table with our results beside it, as text; "-" for a missing record."""
    head = ["model", "F", "train @4", "train @16", "test @4", "test @16", "seconds"]
    rows = [["", *["paper / ours"] * len(METRICS), "ours"]]
    for name, (title, paper) in PAPER.items():
        record = in_table(records, name)
        ours = ["-"] * len(METRICS) if record is None else [f"{n:.2f}" for n in numbers(record)]
        pairs = [f"{a:.2f} / {b}" for a, b in zip(paper, ours, strict=True)]
        rows.append([title, *pairs, "-" if record is None else f"{record['train_seconds']:.0f}"])
    return text_table(head, rows)
