"""Rows in a target that is a dictionary: what is written, and whether a wrong answer is told."""

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common.failures import Failure
from sparse_embed.experiments.exporting.transfer import compare
from sparse_embed.retrieval import SparseIndex


class Liar:
    """Answers as the index does, but with another row in place of the first."""

    def __init__(self, index, instead):
        self._index, self._instead = index, instead

    def search(self, query, k):
        scores, ids = (found[0] for found in self._index.search(query, k))
        ids[0] = self._instead.get(ids[0], ids[0])
        return scores, ids


def test_a_row_must_have_the_score_that_the_database_says():
    rows = scipy.sparse.csr_array(np.eye(6, dtype=np.float32) + 0.1)
    index = SparseIndex.build(rows)
    queries = rows[[0, 1]]
    found = compare(index, Liar(index, {}), queries, 2)
    assert (found.queries, found.same) == (2, 2)
    with pytest.raises(Failure, match=r"query 1: the database finds \[5, 0\]"):
        compare(index, Liar(index, {1: 5}), queries, 2)
