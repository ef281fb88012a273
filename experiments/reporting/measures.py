"""Recall, differences of recall and ratios of times of groups of records, with their intervals."""

import functools
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import selection
from sparse_embed.experiments.reporting.intervals import (
    UNKNOWN,
    Interval,
    of_median,
    of_ratio,
    of_seeds,
    without_ends,
)
from sparse_embed.experiments.reporting.selection import Group, NotMeasured

BUSY = 0.1  # cores of other processes, above which the machine was not idle


class Counts(NamedTuple):
    """Of one record, by the class of the probes: pairs of probe and mate, and those found."""

    classes: np.ndarray
    hits: np.ndarray
    mates: np.ndarray


def counts(record: Record) -> Counts:
    """Returns the counts of a record; NotMeasured if it has no raw results."""
    path = selection.raw_file(record)
    modified = path.stat().st_mtime_ns if path.exists() else 0
    inside = tuple(record["arrays"].items()) if "arrays" in record else None
    return _counts(record["folder"], record["name"], inside, modified)


@functools.lru_cache(maxsize=2000)  # each record meets many others
def _counts(
    folder: pathlib.Path, name: str, inside: tuple[tuple[str, str], ...] | None, modified: int
) -> Counts:
    """Sums over the probes of each class; the time tells the cache of a change."""
    del modified
    record: Record = {"folder": folder, "name": name}
    if inside is not None:
        record["arrays"] = dict(inside)
    raw = selection.arrays(record, "labels", "mates", "hits")
    classes, place = np.unique(raw["labels"], return_inverse=True)
    hits, mates = (np.bincount(place, raw[key]) for key in ("hits", "mates"))
    return Counts(classes, hits, mates)


def check_probes(found: Sequence[Counts]) -> None:
    """Raises NotMeasured unless all counts are of the same probes."""
    for one in found[1:]:
        if not (
            np.array_equal(one.classes, found[0].classes)
            and np.array_equal(one.mates, found[0].mates)
        ):
            raise NotMeasured("two records that are compared have different probes")


def stack(found: Sequence[Counts]) -> tuple[np.ndarray, np.ndarray]:
    """Returns hits and mates (classes, seeds) of counts of some seeds."""
    check_probes(found)
    return np.stack([c.hits for c in found], axis=1), np.stack([c.mates for c in found], axis=1)


def minus(one: Counts, other: Counts) -> Counts:
    """Returns the difference of the hits of two methods."""
    check_probes([one, other])
    return one._replace(hits=one.hits - other.hits)


def recall(group: Group) -> Interval:
    """Returns recall@1; without its ends if the raw results are gone."""
    try:
        return of_ratio(*stack([counts(record) for record in selection.records_of(group)]))
    except NotMeasured:
        return without_ends(group["recall_at_1"], len(group.records))


def recall_difference(one: Group, other: Group) -> Interval:
    """Returns recall@1 of `one` less that of `other`, paired by class and seed."""
    seeds = selection.common_seeds([one, other])
    if not seeds:
        raise NotMeasured("two methods have no seed in common")
    return of_ratio(
        *stack([minus(counts(one.records[s]), counts(other.records[s])) for s in seeds])
    )


def time_ratio(one: Group, other: Group) -> Interval:
    """Returns time of `one` / time of `other`; unknown unless they were timed in turns."""
    ratios: list[np.ndarray] = []
    for seed in selection.common_seeds([one, other]):
        pair = one.records[seed], other.records[seed]
        turns = {record.get("turns") for record in pair}
        if len(turns) == 1 and None not in turns:
            ours, theirs = (_round_medians(record) for record in pair)
            ratios.append(ours / theirs)
    return of_median(np.concatenate(ratios), len(ratios)) if ratios else UNKNOWN


def _round_medians(record: Record) -> np.ndarray:
    medians: np.ndarray = np.median(selection.arrays(record, "seconds")["seconds"], axis=1)
    return medians


def per_seed(group: Group, key: str) -> Interval:
    """Returns a metric of which each seed has one value."""
    return of_seeds(np.array([record[key] for record in selection.records_of(group)]))


def circumstances(found: Sequence[Group]) -> str:
    """Returns the distractors, the seeds, and whether the machine was busy while it timed."""
    distractors = " or ".join(f"{n:,}" for n in selection.values(found, "distractors"))
    load = max(record.get("other_load", 0) for record in selection.records_of(*found))
    busy = ", machine not idle" if load > BUSY else ""
    return f"{distractors} distractors, {seeds_of(found)}{busy}"


def seeds_of(found: Sequence[Group]) -> str:
    """Returns how many seeds groups have, such as "1 to 3 seeds"."""
    numbers = sorted({len(group.records) for group in found})
    several = "" if len(numbers) == 1 else f"{numbers[0]} to "
    return several + told_seeds(numbers[-1])


def told_seeds(number: int) -> str:
    """Returns a number of seeds in words."""
    return "1 seed" if number == 1 else f"{number} seeds"
