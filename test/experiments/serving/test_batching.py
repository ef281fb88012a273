"""Queries that share a batch have the answers that they have alone."""

import concurrent.futures
import threading

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.experiments.serving.answers import Query, answer_all
from sparse_embed.experiments.serving.batching import Batcher


def same(one, other):
    assert one.ids.tolist() == other.ids.tolist()
    assert one.scores.tobytes() == other.scores.tobytes()
    assert (one.code != other.code).nnz == 0


def test_a_batch_answers_as_each_query_alone(collection):
    rng = np.random.default_rng(0)
    only = ("forbidden", np.arange(5).tobytes())
    queries = []
    for number in range(40):
        options = {
            "k": int(rng.integers(1, 50)),
            "threshold": [None, 0.2][number % 2],
            "only": [None, None, only][number % 3],
            "shortlist": [None, 9][number % 5 == 0],
        }
        kind = number % 4
        if kind == 0:
            options["row"] = number
        elif kind == 1 or options["shortlist"]:
            options["image"] = rng.random((16, 16, 3), np.float32)
        else:
            options["vector"] = scipy.sparse.random(1, 64, 0.3, "csr", np.float32, random_state=rng)
        queries.append(Query(**options))
    together = answer_all(collection, queries)
    for query, answer in zip(queries, together, strict=True):
        (alone,) = answer_all(collection, [query])
        same(alone, answer)
        assert len(answer.ids) <= query.k
        assert query.row not in answer.ids.tolist()
    assert any(len(answer.ids) > 10 for answer in together)


def test_clients_at_the_same_time_share_batches(client, photo):
    """And get what each gets alone."""
    asked = [("GET", f"/search/id/{number % 40}?k={1 + number % 7}", None) for number in range(60)]
    asked += [("POST", "/search/image?k=5", photo)] * 20

    def ask(what):
        return client.request(what[0], what[1], content=what[2]).json()

    alone = [ask(what) for what in asked]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, asked))
    for one, other in zip(alone, together, strict=True):
        assert (one["results"], one["query"]) == (other["results"], other["query"])
    assert {one["batch"] for one in alone} == {1}
    assert max(one["batch"] for one in together) > 1


def test_jobs_that_wait_are_taken_together():
    begun, may_go_on, sizes = threading.Event(), threading.Event(), []

    def work(jobs):
        sizes.append(len(jobs))
        begun.set()
        assert may_go_on.wait(10)
        return [job * 2 for job in jobs]

    batcher = Batcher(work, largest=4)
    first = batcher.submit(1)
    assert begun.wait(10)
    others = [batcher.submit(job) for job in range(2, 9)]
    assert others[0].cancel()
    may_go_on.set()
    assert first.result().answer == 2
    assert [one.result().answer for one in others[1:]] == [6, 8, 10, 12, 14, 16]
    assert sizes == [1, 3, 3]  # the cancelled one is dropped from a batch of 4
    assert others[-1].result().batch == 3
    batcher.close()
    assert not batcher.is_alive


def test_a_failure_is_not_that_of_the_others():
    def work(jobs):
        return [1 / job for job in jobs]

    batcher = Batcher(work)
    answers = [batcher.submit(job) for job in (1, 0, 2)]
    assert answers[0].result().answer == 1
    with pytest.raises(ZeroDivisionError):
        answers[1].result()
    assert answers[2].result().answer == 0.5
    batcher.close()
