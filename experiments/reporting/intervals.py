"""95% intervals of what was measured, by resampling; the rules that use them: docs/claims.md.

A *replicate* is a quantity computed again on a resample of classes or pairs. Resamples are drawn
with fixed generators: the same records give the same intervals, and two quantities on the same
classes share their resamples, which pairs them.
"""

import functools
from typing import NamedTuple

import numpy as np
import scipy.stats

LEVEL = 0.95
RESAMPLES = 2000
_TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


class Interval(NamedTuple):
    """A quantity with its 95% interval.

    Attributes:
        mean: the quantity itself, a mean over seeds where there are several.
        low: lower end; NaN if nothing is known, and then the quantity is neither above nor below.
        high: upper end.
        seeds: how many training seeds it rests on.
    """

    mean: float
    low: float
    high: float
    seeds: int = 1

    def above(self, limit: float) -> bool:
        """Whether the whole interval lies above a limit."""
        return self.low > limit

    def below(self, limit: float) -> bool:
        """Whether the whole interval lies below a limit."""
        return self.high < limit

    def __format__(self, form: str) -> str:
        """Formats the mean and both ends alike: "0.350 [0.341, 0.359]"."""
        if np.isnan(self.mean):
            return "unknown"
        if np.isnan(self.low):
            return f"{self.mean:{form}} (no interval)"
        return f"{self.mean:{form}} [{self.low:{form}}, {self.high:{form}}]"


UNKNOWN = Interval(np.nan, np.nan, np.nan, 0)


def without_ends(mean: float, seeds: int = 1) -> Interval:
    """Returns a quantity whose spread is unknown."""
    return Interval(float(mean), np.nan, np.nan, seeds)


@functools.lru_cache(maxsize=4)  # one can take 100 MB
def resamples(count: int, stream: int = 0) -> np.ndarray:
    """Returns (RESAMPLES, count) float32: how often each of `count` things is drawn.

    Args:
        count: of the things, each resample draws as many.
        stream: resamples of another stream are independent.
    """
    rng = np.random.default_rng((count, stream))
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    return drawn.astype(np.float32)


def over_seeds(estimates: np.ndarray, replicates: np.ndarray) -> Interval:
    """Returns the interval of a mean over seeds: other seeds count as well as other resamples.

    To resample a handful of seeds would show too little of their spread. Each replicate gets an
    error of the seeds instead, s / sqrt(S) times a draw of Student's t with S - 1 degrees of
    freedom, where s is the standard deviation over the S seeds.

    Args:
        estimates: (seeds,) the quantity of each seed.
        replicates: (RESAMPLES, seeds) the same on resamples, which all seeds share.
    """
    seeds = len(estimates)
    means = replicates.mean(axis=1)
    if seeds > 1:
        drawn = scipy.stats.t.rvs(seeds - 1, size=len(means), random_state=seeds)
        means = means + scipy.stats.sem(estimates) * drawn
    low, high = np.quantile(means, _TAILS)
    return Interval(float(np.mean(estimates)), float(low), float(high), seeds)


def of_seeds(values: np.ndarray) -> Interval:
    """Returns the interval of the mean of a quantity that is known per seed alone: Student's t."""
    seeds, mean = len(values), float(np.mean(values))
    if seeds < 2:
        return without_ends(mean, seeds)
    low, high = mean + scipy.stats.sem(values) * scipy.stats.t.ppf(_TAILS, seeds - 1)
    return Interval(mean, float(low), float(high), seeds)


def ratio_replicates(parts: np.ndarray, wholes: np.ndarray, stream: int = 0) -> np.ndarray:
    """Returns (RESAMPLES, seeds): sum of parts / sum of wholes over resampled clusters.

    Args:
        parts: (clusters, seeds), such as hits per class, or a difference of hits.
        wholes: (clusters, seeds), such as mates per class.
        stream: see `resamples`.
    """
    drawn = resamples(len(parts), stream)
    ratios: np.ndarray = (drawn @ parts.astype(np.float32)) / (drawn @ wholes.astype(np.float32))
    return ratios


def of_ratio(parts: np.ndarray, wholes: np.ndarray) -> Interval:
    """Returns the interval of sum of parts / sum of wholes; clusters and seeds are resampled."""
    return over_seeds(parts.sum(axis=0) / wholes.sum(axis=0), ratio_replicates(parts, wholes))


def of_median(values: np.ndarray, seeds: int = 1) -> Interval:
    """Returns the interval of a median; the values, such as one per round, are resampled."""
    if len(values) < 2:
        return without_ends(np.median(values), seeds)
    found = scipy.stats.bootstrap(
        (values,),
        np.median,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(float(np.median(values)), float(found.low), float(found.high), seeds)


def true_positive_rates(
    scores: np.ndarray, same: np.ndarray, far: float, stream: int = 0
) -> np.ndarray:
    """Returns the highest true positive rate at a false positive rate of at most `far`.

    Pairs of one identity and of two are resampled apart. The rate is the part of the former that
    score more than the first of the latter, in falling order, that would be one too many.

    Args:
        scores: (pairs,).
        same: (pairs,) whether a pair is of one identity.
        far: the false positive rate, below 1.
        stream: see `resamples`.

    Returns:
        (1 + RESAMPLES,): of the pairs themselves, then of each resample.
    """
    positive, negative = scores[same], scores[~same]
    order = np.argsort(-negative, kind="stable")
    drawn = resamples(len(negative), 2 * stream + 1)
    near = int(2 * far * len(negative)) + 100  # the first one too many is almost surely among these
    for top in (order[:near], order):
        counts = np.cumsum(np.vstack([np.ones(len(top)), drawn[:, top]]), axis=1)
        too_many = counts / len(negative) > far
        if too_many[:, -1].all():
            break
    first = negative[top][np.argmax(too_many, axis=1)]
    # Few of them differ, since all are near one rank.
    thresholds, place = np.unique(first, return_inverse=True)
    accepted = (positive[:, None] > thresholds).astype(np.float32)
    rates = np.vstack([accepted.sum(axis=0), resamples(len(positive), 2 * stream) @ accepted])
    return rates[np.arange(len(rates)), place] / len(positive)
