"""Merging the results of several searches, against a sort of all of them by both keys."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparse_embed.retrieval.merging import merge_results


def results(rng, parts, queries, width):
    """Results with many ties, infinities and unused places; no id is in two parts."""
    ids = rng.permutation(parts * queries * width * 3)
    found = []
    for part in range(parts):
        scores = rng.choice(
            np.array([-np.inf, -1, -0.0, 0, 0.5, 2, np.inf], "f4"), (queries, width)
        )
        own = ids[part::parts][: queries * width].reshape(queries, width).astype(np.int64)
        used = rng.integers(0, width + 1, queries)
        for row in range(queries):
            order = np.lexsort((own[row], -scores[row]))
            scores[row], own[row] = scores[row, order], own[row, order]
            scores[row, used[row] :], own[row, used[row] :] = -np.inf, -1
        found.append((scores, own))
    return found


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 4), st.integers(1, 9))
def test_merging_is_sorting(seed, parts, queries, width):
    rng = np.random.default_rng(seed)
    found = results(rng, parts, queries, width)
    k = int(rng.integers(1, parts * width + 3))
    scores, ids = merge_results(found, k)
    assert scores.dtype == np.float32
    assert ids.dtype == np.int64
    assert scores.shape == ids.shape == (queries, min(k, parts * width))
    for row in range(queries):
        entries = [
            (-score, one)
            for part in found
            for score, one in zip(part[0][row], part[1][row], strict=True)
            if one >= 0
        ]
        wanted = sorted(entries)[:k]
        assert [(-s, i) for s, i in zip(scores[row], ids[row], strict=True) if i >= 0] == wanted
        assert (ids[row, len(wanted) :] == -1).all()
        assert (scores[row, len(wanted) :] == -np.inf).all()
