"""Rules of the claims about the verification of pairs (docs/claims.md)."""

import numpy as np

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import intervals, judging, measures, selection
from sparse_embed.experiments.reporting.intervals import Interval, over_seeds
from sparse_embed.experiments.reporting.judging import Finding, name
from sparse_embed.experiments.reporting.selection import Group, NotMeasured
from sparse_embed.retrieval.pair_verification import verification_of_scores

FAR = 0.01  # false positive rate at which encoders are compared


def _groups(records: list[Record]) -> list[Group]:
    found = selection.needed(records, "verification", experiment="verification")
    return selection.groups(found)


def _scores(record: Record) -> tuple[np.ndarray, np.ndarray]:
    raw = selection.arrays(record, "scores", "same")
    return raw["scores"], raw["same"].astype(bool)


def verification_of_sparse(records: list[Record]) -> Finding:
    """At equal p, relaxed FLOPs accept more pairs of one identity at FPR 0.01 than l1."""

    def judge(part: list[Group]) -> Finding:
        findings = []
        for stream, data in enumerate(selection.values(part, "data")):
            interval = _advantage_over_l1(selection.select(part, data=data), stream)
            if interval is not None:
                text = f"{data} {interval:+.4f}"
                findings.append(judging.apart(judging.above(interval), interval, text))
        if not findings:
            raise NotMeasured("no weight of relaxed FLOPs has a p within the range of l1")
        outcome, numbers = judging.together(findings)
        text = f"{measures.seeds_of(part)}: true positive rate at FPR {FAR} of FLOPs less l1"
        return Finding(outcome, f"{text} at equal p: {numbers}")

    methods = ("flops", "l1")
    sparse = selection.select(_groups(records), method=methods)
    return judging.each(sparse, "verification", methods, judge)


def _advantage_over_l1(part: list[Group], stream: int) -> Interval | None:
    """Returns the advantage on one set of pairs; None if no setting can be compared."""
    found = []
    for seed in sorted({seed for group in part for seed in group.records}):
        of_seed = [group.records[seed] for group in part if seed in group.records]
        ours, theirs = (
            [
                (
                    record["activation_probability"],
                    intervals.true_positive_rates(*_scores(record), FAR, stream),
                )
                for record in of_seed
                if record["method"] == method
            ]
            for method in ("flops", "l1")
        )
        difference = judging.advantage(ours, theirs) if ours and theirs else None
        if difference is not None:
            found.append(difference)
    if not found:
        return None
    rates = np.stack(found, axis=1)
    return over_seeds(rates[0], rates[1:])


def easy_set_is_easier(records: list[Record]) -> Finding:
    """The gap of accuracy of the best sparse to the dense encoder is smaller on the easier set."""

    def judge(part: list[Group]) -> Finding:
        dense = [max(_of(part, data, "dense"), key=_accuracy) for data in _sets(part)]
        if len(dense) < 2:
            raise NotMeasured("this run verified only one set of pairs")
        dense.sort(key=_accuracy, reverse=True)
        ends = [dense[0], dense[-1]]
        sparse = [max(_of(part, group["data"], "flops", "l1"), key=_accuracy) for group in ends]
        seeds = selection.common_seeds([*ends, *sparse])
        if not seeds:
            raise NotMeasured("dense and sparse encoders have no seed in common")
        easy, hard = (
            _gaps(full, best, seeds, stream)
            for stream, (full, best) in enumerate(zip(ends, sparse, strict=True))
        )
        change = easy - hard
        interval = over_seeds(change[0], change[1:])
        texts = [
            f"{full['data']} {_accuracy(full) - _accuracy(best):.4f} below {_accuracy(full):.4f} "
            f"with {name(best)}"
            for full, best in zip(ends, sparse, strict=True)
        ]
        text = f"{measures.told_seeds(len(seeds))}: gap of accuracy: {', '.join(texts)}; difference"
        return Finding(judging.below(interval), f"{text} {interval:+.4f}")

    return judging.each(_groups(records), "verification", ("dense", "flops"), judge)


def _sets(part: list[Group]) -> list[str]:
    """Returns the sets of pairs on which dense and sparse encoders were evaluated."""
    return [
        data
        for data in selection.values(part, "data")
        if _of(part, data, "dense") and _of(part, data, "flops", "l1")
    ]


def _of(part: list[Group], data: str, *methods: str) -> list[Group]:
    return selection.select(part, data=data, method=methods)


def _accuracy(group: Group) -> float:
    accuracy: float = group["accuracy"]
    return accuracy


def _gaps(dense: Group, sparse: Group, seeds: list[int], stream: int) -> np.ndarray:
    """Returns (1 + resamples, seeds): the gap on the pairs themselves, then on each resample."""
    differences = np.stack(
        [_is_right(dense.records[seed]) - _is_right(sparse.records[seed]) for seed in seeds], axis=1
    )
    replicates = intervals.ratio_replicates(differences, np.ones_like(differences), stream)
    return np.vstack([differences.mean(axis=0), replicates])


def _is_right(record: Record) -> np.ndarray:
    """Returns (pairs,): 1 where the threshold of the other folds tells a pair rightly, else 0."""
    scores, same = _scores(record)
    thresholds = verification_of_scores(scores, same).fold_thresholds
    folds = np.array_split(np.arange(len(scores)), len(thresholds))
    thresholds = np.repeat(thresholds, [len(fold) for fold in folds])
    right: np.ndarray = ((scores >= thresholds) == same).astype(float)
    return right
