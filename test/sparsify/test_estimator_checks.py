"""scikit-learn's own checks of an estimator, as far as they apply."""

import numpy as np
import pytest

from sparse_embed.sparsify import Sparsifier

sklearn_checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="needs scikit-learn")

# Whether these pass depends on the library of matrix products; here is why they need not.
DEPARTURES = {
    "check_methods_sample_order_invariance": "float32 products round by the place of a row in a "
    "batch: differences of 3e-7 where it allows 1e-9",
}


@sklearn_checks.parametrize_with_checks([Sparsifier(dim=8, nonzeros=3, steps=2, random_state=0)])
def test_check(estimator, check):
    name = check.func.__name__
    if name in DEPARTURES:
        pytest.skip(DEPARTURES[name])
    check(estimator)


def test_order_of_rows_changes_no_more_than_rounding():
    x = np.random.default_rng(0).normal(size=(30, 10)).astype(np.float32)
    fitted = Sparsifier(dim=8, nonzeros=3, steps=2, random_state=0).fit(x)
    order = np.random.default_rng(1).permutation(30)
    codes = fitted.transform(x).toarray()
    np.testing.assert_allclose(fitted.transform(x[order]).toarray(), codes[order], atol=1e-5)
