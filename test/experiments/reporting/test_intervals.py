"""Intervals against plain loops over resamples, and against standard errors in closed form."""

import numpy as np
import pytest

from sparse_embed.experiments.reporting import intervals, judging
from sparse_embed.experiments.reporting.intervals import Interval
from sparse_embed.retrieval.pair_verification import roc, verification_of_scores

Z = 1.959964  # a normal interval is the mean and this many standard errors on both sides


def standard_error(interval):
    return (interval.high - interval.low) / (2 * Z)


@pytest.fixture(scope="module")
def outcomes():
    """Hits and mates of 300 classes, 4 seeds; classes are of different size and difficulty."""
    rng = np.random.default_rng(3)
    mates = np.repeat(rng.integers(5, 60, (300, 1)), 4, axis=1)
    ease = np.clip(rng.normal(0.7, 0.15, (300, 1)) + np.array([0.0, 0.02, -0.03, 0.01]), 0.05, 0.95)
    return rng.binomial(mates, ease).astype(float), mates.astype(float)


def looped(hits, mates, count=3000):
    """The bootstrap as docs/claims.md tells it, one resample at a time."""
    rng = np.random.default_rng(17)
    classes, seeds = hits.shape
    recalls = hits.sum(axis=0) / mates.sum(axis=0)
    error = recalls.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else 0.0
    found = []
    for _ in range(count):
        chosen = rng.integers(0, classes, classes)
        per_seed = [hits[chosen, s].sum() / mates[chosen, s].sum() for s in range(seeds)]
        found.append(np.mean(per_seed) + error * rng.standard_t(max(1, seeds - 1)))
    return np.quantile(found, [0.025, 0.975])


def test_one_seed_is_the_ratio_estimators_standard_error(outcomes):
    """By linearization: sqrt(sum (h_c - r m_c)^2) / sum m_c."""
    hits, mates = (array[:, :1] for array in outcomes)
    found = intervals.of_ratio(hits, mates)
    ratio = hits.sum() / mates.sum()
    expected = np.sqrt(((hits - ratio * mates) ** 2).sum()) / mates.sum()
    assert found.mean == pytest.approx(ratio)
    assert found.seeds == 1
    assert standard_error(found) == pytest.approx(expected, rel=0.06)
    np.testing.assert_allclose(found[1:3], looped(hits, mates), atol=0.25 * expected)


def test_seeds_are_crossed_with_classes(outcomes):
    hits, mates = outcomes
    found = intervals.of_ratio(hits, mates)
    expected = looped(hits, mates)
    assert found.mean == pytest.approx(np.mean(hits.sum(axis=0) / mates.sum(axis=0)))
    np.testing.assert_allclose(found[1:3], expected, atol=0.08 * (expected[1] - expected[0]))
    assert standard_error(found) > 1.1 * standard_error(
        intervals.of_ratio(hits[:, :1], mates[:, :1])
    )


def test_a_difference_pairs_classes(outcomes):
    """Two methods with the same outcomes but for 0.01 differ by that, surely."""
    hits, mates = outcomes
    found = intervals.of_ratio(hits + 0.01 * mates - hits, mates)
    np.testing.assert_allclose(found[:3], 0.01, rtol=1e-5)


def test_intervals_over_seeds_cover_the_truth_in_95_of_100_cases():
    """Normal seeds: of seeds alone, and of seeds with classes that hardly differ."""
    rng = np.random.default_rng(1)
    for seeds in (2, 3, 5):
        values = rng.normal(2, 3, (1000, seeds))
        covered = {"alone": 0, "classes": 0}
        for row in values:
            found = intervals.of_seeds(row)
            covered["alone"] += found.low < 2 < found.high
            replicates = row + rng.normal(0, 0.01, (intervals.RESAMPLES, 1))
            found = intervals.over_seeds(row, replicates)
            covered["classes"] += found.low < 2 < found.high
        for count in covered.values():
            assert 930 <= count <= 970, (seeds, covered)  # 95% +- 3 standard deviations


def test_one_seed_has_no_interval_over_seeds():
    found = intervals.of_seeds(np.array([1.5]))
    assert found.mean == 1.5
    assert not found.above(-9)
    assert not found.below(9)
    assert f"{found:.1f}" == "1.5 (no interval)"
    assert f"{Interval(0.5, 0.25, 0.75):+.2f}" == "+0.50 [+0.25, +0.75]"
    assert f"{intervals.UNKNOWN:.2f}" == "unknown"


def test_median_of_normal_values():
    """Its standard error is sqrt(pi / 2) sigma / sqrt(n)."""
    widths = []
    for seed in range(20):
        values = np.random.default_rng(seed).normal(10, 2, 400)
        found = intervals.of_median(values)
        assert found.mean == np.median(values)
        widths.append(standard_error(found))
    assert np.mean(widths) == pytest.approx(np.sqrt(np.pi / 2) * 2 / 20, rel=0.1)


def test_intervals_are_the_same_each_time(outcomes):
    assert intervals.of_ratio(*outcomes) == intervals.of_ratio(*outcomes)
    values = outcomes[0][:, 0]
    assert intervals.of_median(values) == intervals.of_median(values)
    assert (intervals.resamples(10, 0) != intervals.resamples(10, 1)).any()
    assert (intervals.resamples(10, 0).sum(axis=1) == 10).all()


@pytest.mark.parametrize("far", [0.0, 0.01, 0.4])
def test_true_positive_rates_are_those_of_the_pairs_drawn(far):
    """Pairs repeated as often as drawn, and the curve over them; scores with ties."""
    rng = np.random.default_rng(5)
    same = rng.random(500) < 0.5
    scores = np.round(rng.normal(size=500) + 1.5 * same, 1)
    found = intervals.true_positive_rates(scores, same, far, stream=3)
    assert len(found) == 1 + intervals.RESAMPLES
    tar = verification_of_scores(scores, same, fars=[far]).tar_at_far[far]
    assert found[0] == pytest.approx(tar)
    positive = intervals.resamples(int(same.sum()), 6).astype(int)
    negative = intervals.resamples(int((~same).sum()), 7).astype(int)
    ones = np.ones(500, int)
    for place in range(40):
        times = ones.copy()
        if place:
            times[same], times[~same] = positive[place - 1], negative[place - 1]
        curve = roc(np.repeat(scores, times), np.repeat(same, times))
        assert found[place] == pytest.approx(curve.tpr[curve.fpr <= far][-1], abs=1e-6)


def test_advantage_is_interpolated_in_the_logarithm():
    """Half-way between 1 and 100 is 10: theirs is 3 there, and 2 at 1."""
    theirs = [(100.0, np.array([4.0, 40.0])), (1.0, np.array([2.0, 20.0]))]
    ours = [(10.0, np.array([5.0, 50.0])), (1.0, np.array([2.0, 21.0])), (500.0, np.array([9, 9]))]
    np.testing.assert_allclose(judging.advantage(ours, theirs), [1.0, 10.5])
    np.testing.assert_allclose(judging.advantage(ours, theirs, beyond=True), [7 / 3, -10 / 3])
    assert judging.advantage(ours[2:], theirs) is None
    np.testing.assert_allclose(judging.advantage(ours[:1], theirs[1:], beyond=True), [3, 30])


def test_outcomes_follow_the_interval():
    inside, over, under = Interval(0, -1, 1), Interval(2, 1, 3), Interval(-2, -3, -1)
    assert [judging.above(found) for found in (over, under, inside)] == list(judging.OUTCOMES[:3])
    assert [judging.below(found) for found in (under, over, inside)] == list(judging.OUTCOMES[:3])
    held, not_held, undecided, _ = judging.OUTCOMES
    assert judging.all_hold([held, undecided, not_held]) == not_held
    assert judging.all_hold([held, undecided]) == undecided
    assert judging.all_hold([held, held]) == held
    assert judging.apart(held, Interval(2, 1, 3, 1), "x") == (undecided, "x (one seed)")
    assert judging.apart(held, Interval(2, 1, 3, 2), "x") == (held, "x")


def test_three_seeds_have_two_degrees_of_freedom():
    """Mean 2, standard error 1 / sqrt(3), and 4.3027 of them to each side."""
    found = intervals.of_seeds(np.array([1.0, 2.0, 3.0]))
    reach = 4.302653 / np.sqrt(3)
    assert found == pytest.approx((2.0, 2.0 - reach, 2.0 + reach, 3), abs=1e-5)
