"""Rules of the claims about CIFAR-100 (docs/claims.md)."""

from collections.abc import Sequence

import numpy as np

from sparse_embed.experiments.core.paper import FAST, METRICS, OWN, PAPER, SERIES, Series
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import judging, selection
from sparse_embed.experiments.reporting.cifar100_table import in_table, recorded_series
from sparse_embed.experiments.reporting.intervals import Interval, of_seeds
from sparse_embed.experiments.reporting.judging import HELD, NOT_HELD, Finding
from sparse_embed.experiments.reporting.measures import told_seeds
from sparse_embed.experiments.reporting.selection import NotMeasured

FACTOR = 0.5  # of the cost of SDH, which relaxed FLOPs shall stay below
MARGIN = 0.2  # of the factor, if there is one seed
COST, *PRECISIONS = METRICS


def judged(records: list[Record], *rows: str) -> list[Series]:
    """Returns the series that claims about some rows are judged on.

    It is that of the paper's own network, if there is any record of it, and else all others.
    """
    found = recorded_series(records) or [FAST]
    wanted = [series for series in found if set(rows) <= set(series.rows)]
    return [OWN] if OWN in found else wanted


def cheaper_than_sdh(records: list[Record]) -> Finding:
    """Relaxed FLOPs cost less than half of SDH k=1; precision@4 among test images is reported."""
    (series,) = judged(records, "flops", "sdh_k1")
    found = [in_table(records, series, row) for row in ("flops", "sdh_k1")]
    for row, group in zip(("flops", "sdh_k1"), found, strict=True):
        if group is None:
            raise NotMeasured(f"this run has no record of CIFAR-100, {PAPER[row].title}")
    groups = [group for group in found if group is not None]
    seeds = selection.common_seeds(groups)
    if not seeds:
        raise NotMeasured("flops and sdh_k1 on CIFAR-100 have no seed in common")
    pairs = [tuple(group.records[seed] for group in groups) for seed in seeds]
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
        f"{series.network}, {told_seeds(len(pairs))}: {means[0][0]:.2f} against {means[1][0]:.2f} "
        f"multiply-adds per row, ratio {ratio:.3f}; precision@4 among test images "
        f"{means[0][1]:.2%} against {means[1][1]:.2%}",
    )


def advantage(
    records: list[Record], series: Series, metric: str, target: float | None = None
) -> Interval:
    """Returns a precision of relaxed FLOPs less that of l1 at equal F, over seeds.

    l1's is interpolated in log F. A model cheaper than all of l1's is compared with its cheapest; a
    dearer one is left out.

    Args:
        records: of a run.
        series: of which models.
        metric: a column of the table.
        target: FLOPs per row that relaxed FLOPs were trained for; None for the mean over all.
    """
    sides = [
        selection.select(records, experiment="cifar100", model=series.prefix + row)
        for row in ("flops", "l1")
    ]
    if target is not None:
        sides[0] = [r for r in sides[0] if r["setting"].get("target_flops") == target]
    found = []
    for seed in sorted(set.intersection(*({selection.seed(r) for r in side} for side in sides))):
        ours, theirs = (_points(side, seed, metric) for side in sides)
        dearest = max(cost for cost, _ in theirs)
        within = [point for point in ours if point[0] <= dearest]
        difference = judging.advantage(within, theirs, beyond=True)
        if difference is not None:
            found.append(float(difference))
    if not found:
        raise NotMeasured(f"{series.network} has no relaxed FLOPs within the F of l1")
    return of_seeds(np.array(found))


def _points(records: Sequence[Record], seed: int, metric: str) -> list[tuple[float, np.ndarray]]:
    """Returns F and a metric of the records of a seed."""
    return [(r[COST], np.array(r[metric])) for r in records if selection.seed(r) == seed]


def better_than_l1_on_cifar100(records: list[Record]) -> Finding:
    """Relaxed FLOPs have higher precision than l1 in every column at equal F, in every series."""
    findings, reasons = [], []
    for series in judged(records, "flops", "l1"):
        try:
            more = {metric: advantage(records, series, metric) for metric in PRECISIONS}
        except NotMeasured as reason:
            reasons.append(str(reason))
            continue
        columns = [judging.above(interval) for interval in more.values()]
        texts = [f"{metric} {interval:+.2%}" for metric, interval in more.items()]
        first = more[PRECISIONS[0]]
        text = f"{series.network}, {told_seeds(first.seeds)}: FLOPs less l1: {', '.join(texts)}"
        findings.append(judging.apart(judging.all_hold(columns), first, text))
    if not findings:
        raise NotMeasured("; ".join(reasons) or "this run has no record of CIFAR-100")
    return judging.together(findings)


def targets(records: list[Record], series: Series) -> list[float]:
    """Returns the FLOPs per row that relaxed FLOPs were trained for, rising."""
    found = selection.select(records, experiment="cifar100", model=f"{series.prefix}flops")
    return sorted({r["setting"]["target_flops"] for r in found if "target_flops" in r["setting"]})


def compared(records: list[Record]) -> list[tuple[Series, float]]:
    """Returns the series and targets at which relaxed FLOPs can be compared with l1."""
    return [(series, target) for series in SERIES for target in targets(records, series)]
