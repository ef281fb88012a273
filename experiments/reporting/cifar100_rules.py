"""Rules of the claims about CIFAR-100 (docs/claims.md)."""

import numpy as np

from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.reporting import judging
from sparse_embed.experiments.reporting.cifar100_table import (
    FAST,
    METRICS,
    PAPER,
    by_seed,
    recorded_series,
)
from sparse_embed.experiments.reporting.intervals import of_seeds
from sparse_embed.experiments.reporting.judging import HELD, NOT_HELD, UNDECIDED, Finding
from sparse_embed.experiments.reporting.measures import told_seeds
from sparse_embed.experiments.reporting.selection import NotMeasured

FACTOR = 0.5  # of the cost of SDH, which relaxed FLOPs shall stay below
MARGIN = 0.2  # of the factor, if there is one seed
COST, *PRECISIONS = METRICS


def _pairs(records: list[Record], *rows: str) -> tuple[str, list[tuple[Record, ...]]]:
    """Returns the network, and for each common seed the records in the table for some rows.

    They are of one series: that of the paper's own network, if there is any record of it.
    """
    series = (recorded_series(records) or [FAST])[0]
    found = [by_seed(records, series.prefix + row) for row in rows]
    for row, of_row in zip(rows, found, strict=True):
        if not of_row:
            raise NotMeasured(f"this run has no record of CIFAR-100, {PAPER[row].title}")
    seeds = sorted(set.intersection(*map(set, found)))
    if not seeds:
        raise NotMeasured(f"{' and '.join(rows)} on CIFAR-100 have no seed in common")
    return series.network, [tuple(of_row[seed] for of_row in found) for seed in seeds]


def cheaper_than_sdh(records: list[Record]) -> Finding:
    """Relaxed FLOPs cost less than half of SDH k=1; precision@4 among test images is reported."""
    network, pairs = _pairs(records, "flops", "sdh_k1")
    ratio = of_seeds(np.array([flops[COST] / sdh[COST] for flops, sdh in pairs]))
    outcome = judging.below(ratio, FACTOR)
    if ratio.seeds == 1 and abs(ratio.mean / FACTOR - 1) > MARGIN:
        outcome = HELD if ratio.mean < FACTOR else NOT_HELD
    means = [
        [float(np.mean([record[key] for record in side])) for key in (COST, "precision_at_4_test")]
        for side in zip(*pairs, strict=True)
    ]
    return Finding(
        outcome,
        f"{network}, {told_seeds(len(pairs))}: {means[0][0]:.2f} against {means[1][0]:.2f} "
        f"multiply-adds per row, ratio {ratio:.3f}; precision@4 among test images "
        f"{means[0][1]:.2%} against {means[1][1]:.2%}",
    )


def better_than_l1_on_cifar100(records: list[Record]) -> Finding:
    """Relaxed FLOPs have higher precision than l1 in every column, at no higher cost."""
    network, pairs = _pairs(records, "flops", "l1")
    more = {
        metric: of_seeds(np.array([flops[metric] - l1[metric] for flops, l1 in pairs]))
        for metric in METRICS
    }
    cost = more[COST]
    no_higher = HELD if cost.mean <= 0 else UNDECIDED
    cost_outcome = NOT_HELD if cost.above(0) else no_higher
    columns = [judging.above(more[metric]) for metric in PRECISIONS]
    texts = [f"{metric} {more[metric]:+.2%}" for metric in PRECISIONS]
    text = f"{network}, {told_seeds(len(pairs))}: FLOPs less l1: multiply-adds per row {cost:+.3f}"
    outcome = judging.all_hold([cost_outcome, *columns])
    return judging.apart(outcome, cost, f"{text}, {', '.join(texts)}")
