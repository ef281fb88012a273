"""Methods are timed in turns, the same queries in each round."""

import time
import types

import numpy as np
import pytest

from sparse_embed.experiments.methods import timing
from sparse_embed.experiments.methods.registry import Method
from sparse_embed.retrieval import DenseSearch, Reranker


class Noted:
    """An exhaustive search that notes who was asked for what, and takes its time."""

    def __init__(self, name, rows, calls, seconds):
        self._search, self._name, self._calls = DenseSearch(rows), name, calls
        self._seconds, self.shape, self.nbytes = seconds, rows.shape, 0

    def search(self, queries, k, threshold=None, num_threads=1):
        time.sleep(self._seconds)
        assert len(queries) == num_threads == 1
        self._calls.append((self._name, int(np.argmax(queries))))
        return self._search.search(queries, k, threshold, num_threads)


@pytest.fixture
def data():
    rows = np.eye(64, dtype=np.float32)
    return types.SimpleNamespace(
        labels=np.arange(23), dense_probes=rows[:23], reranker=Reranker(rows), rows=rows
    )


def method(data, name, calls, seconds=0.0):
    index = Noted(name, data.rows, calls, seconds)
    return Method(name, {}, lambda: (index, 0.0), data.rows[:23], shortlist=5)


def test_every_method_answers_the_same_queries_before_the_next_round(data):
    calls = []
    entries = [(method(data, "a", calls), False), (method(data, "b", calls), True)]
    found = timing.in_turns(entries, data, 20)
    # A turn: three queries to warm up, then two timed ones; then it is the other method's turn.
    assert len(calls) == 2 * 10 * (2 + 2)
    turns = np.array(calls, dtype=object).reshape(10, 2, 4, 2)
    for one, other in turns:
        assert {name for name, _ in one} == {"a"}
        assert {name for name, _ in other} == {"b"}
        np.testing.assert_array_equal(one[:, 1], other[:, 1])
    timed = turns[:, 0, 2:, 1].ravel().astype(int)
    np.testing.assert_array_equal(timed, np.linspace(0, 22, 20).astype(int))
    assert found[0].metrics["turns"] == found[1].metrics["turns"]
    assert found[0].seconds.shape == found[1].seconds.shape == (10, 2)


def test_times_are_those_of_the_method(data):
    entries = [(method(data, "a", [], 0.004), False), (method(data, "b", [], 0.012), False)]
    fast, slow = timing.in_turns(entries, data, 23)
    assert fast.metrics["timed_queries"] == 23
    assert fast.seconds.shape == (10, 2)  # rounds of two and three queries
    for timed, least in ((fast, 4), (slow, 12)):
        assert timed.seconds.min() >= 1e-3 * least
        assert timed.metrics["milliseconds_per_query"] >= least
        assert (
            timed.metrics["milliseconds_per_query"] <= timed.metrics["milliseconds_per_query_p99"]
        )
