"""Fits of rectified Gaussians to samples whose distribution is known, and to a real encoder."""

import numpy as np
import pytest

from sparse_embed.experiments.evaluation import activations


def test_rectified_gaussians_are_recognised_and_others_are_not():
    """Samples of N(mu, sigma)+ are within sampling error, about 1/sqrt(n), of their fit; a sample
    that is 0 or about 1, each with probability one half, is at least 0.2 away from any: the best
    fit puts half of its mass above 0, but cannot put all of that near 1."""
    rng = np.random.default_rng(0)
    gaussian = np.maximum(rng.normal([-1, -0.5, 0], [1, 2, 0.5], (4000, 3)), 0)
    metrics, arrays = activations.evaluate(gaussian)
    assert metrics["dimensions"] == 3
    assert arrays["distances"].max() < 2 / np.sqrt(4000)
    # The three dimensions shown are ordered by how well they are fitted.
    assert (np.diff(arrays["shown"][:, 2] / (arrays["activations"] > 0).mean(axis=0)) >= 0).all()
    two_peaks = (rng.random((4000, 3)) < 0.5) * rng.normal(1, 0.01, (4000, 3))
    metrics, _ = activations.evaluate(two_peaks)
    assert metrics["ks_distance"] > 0.2
    assert metrics["relative_ks_distance"] == pytest.approx(2 * metrics["ks_distance"], rel=0.1)


def test_dead_dimensions_are_counted_and_left_out():
    rng = np.random.default_rng(0)
    sample = np.maximum(rng.normal(0, 1, (500, 3)), 0)
    sample[:, 1] = 0
    metrics, arrays = activations.evaluate(sample)
    assert (metrics["dimensions"], metrics["skipped_dimensions"]) == (2, 1)
    assert arrays["distances"].shape == (2,)
    with pytest.raises(ValueError, match="20 non-zeros"):
        activations.evaluate(np.zeros((500, 2)))
