"""scikit-learn's own checks of an estimator, as far as they apply."""

import pytest

from sparse_embed.sparsify import Sparsifier

sklearn_checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="needs scikit-learn")

# What a check asks for that we do not do, and why.
DEPARTURES = {
    "check_estimators_unfitted": "scikit-learn, whose NotFittedError it wants, need not be there",
    "check_methods_sample_order_invariance": "float32 products round by the place of a row in a "
    "batch: differences of 3e-7 where it allows 1e-9",
}


@sklearn_checks.parametrize_with_checks(
    [Sparsifier(dim=8, nonzeros=3, steps=2, random_state=0)],
    expected_failed_checks=lambda _: DEPARTURES,
)
def test_check(estimator, check):
    check(estimator)
