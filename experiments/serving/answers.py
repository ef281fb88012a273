"""From queries to answers, a batch at a time: encode, search, re-rank.

Every answer is that of its query alone, whatever else is in the batch: images are encoded one by
one, since a network's sums depend on the size of its batch in the last bits; searches with the
same threshold and filter share one call, whose results do not.
"""

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.experiments.serving.collection import Collection

Filter = tuple[str, bytes] | None  # "allowed" or "forbidden", and the ids as int64


@dataclasses.dataclass(frozen=True)
class Query:
    """What one request asks for; exactly one of `image`, `row` and `vector` is given.

    Attributes:
        k: how many results.
        threshold: smallest sparse score of a result; None for no limit.
        only: which rows may be found.
        shortlist: how many rows are re-ranked; None to leave them in the order of the index.
        codes: whether the answer has the embeddings of the results.
        image: as the encoder takes it.
        row: id of a row, which is not among its own results.
        vector: sparse, of shape (1, dimensions).
        dense: (1, d), to re-rank with, beside `vector`.
    """

    k: int
    threshold: float | None = None
    only: Filter = None
    shortlist: int | None = None
    codes: bool = False
    image: np.ndarray | None = None
    row: int | None = None
    vector: scipy.sparse.csr_array | None = None
    dense: np.ndarray | None = None

    @property
    def wanted(self) -> int:
        """How many rows the index is asked for: one more if the query itself is among them."""
        return (self.shortlist or self.k) + (self.row is not None)


@dataclasses.dataclass
class Answer:
    """What was found for one query.

    Attributes:
        code: the query's sparse embedding, one row.
        scores: best first.
        ids: of the same rows.
        codes: their embeddings, if they were asked for.
        seconds: of each stage, of the batch where it was shared.
    """

    code: scipy.sparse.csr_array
    scores: np.ndarray
    ids: np.ndarray
    codes: scipy.sparse.csr_array | None
    seconds: dict[str, float]


def answer_all(
    collection: Collection, queries: list[Query], deadline: float | None = None
) -> list[Answer]:
    """Answers queries that were checked before; see `Query`.

    Args:
        collection: what to answer from.
        queries: the batch.
        deadline: seconds that a search may take, for an index that can be told.
    """
    begin = time.perf_counter()
    timed = {} if deadline is None or not collection.has_deadlines else {"deadline": deadline}
    encoded = [_encode(collection, query) for query in queries]
    found: list[Any] = [None] * len(queries)
    for places in _alike(queries):
        start = time.perf_counter()
        group = [queries[place] for place in places]
        rows = scipy.sparse.vstack([encoded[place][0] for place in places], format="csr")
        most = max(query.wanted for query in group)
        options = {**_filter(group[0].only), **timed}
        scores, ids = collection.index.search(
            rows, most, group[0].threshold, collection.num_threads, **options
        )
        taken = time.perf_counter() - start
        for place, own_scores, own_ids in zip(places, scores, ids, strict=True):
            # It has waited for the encoding of others, before its own and after.
            waited = start - begin - encoded[place][2]
            found[place] = (*_own(queries[place], own_scores, own_ids), taken, waited)
    return [
        _finish(collection, query, *code_and_dense, *results)
        for query, code_and_dense, results in zip(queries, encoded, found, strict=True)
    ]


def _encode(
    collection: Collection, query: Query
) -> tuple[scipy.sparse.csr_array, np.ndarray | None, float]:
    """Returns the sparse row, the dense one if it is needed, and the seconds."""
    start = time.perf_counter()
    dense = query.dense
    if query.image is not None:
        assert collection.encoder is not None
        code = scipy.sparse.csr_array(collection.encoder.encode(query.image[None]))
        if query.shortlist is not None:
            assert collection.dense_encoder is not None
            dense = collection.dense_encoder.encode(query.image[None])
    elif query.row is not None:
        code = collection.index.reconstruct([query.row])
        if query.shortlist is not None:
            assert collection.dense is not None
            dense = collection.dense[query.row][None]
    else:
        assert query.vector is not None
        code = query.vector
    return code, dense, time.perf_counter() - start


def _alike(queries: list[Query]) -> Iterator[list[int]]:
    """Yields the places of queries that one search answers."""
    groups: dict[Any, list[int]] = {}
    for place, query in enumerate(queries):
        groups.setdefault((query.threshold, query.only), []).append(place)
    yield from groups.values()


def _filter(only: Filter) -> dict[str, np.ndarray]:
    return {} if only is None else {only[0]: np.frombuffer(only[1], np.int64)}


def _own(query: Query, scores: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the results that a search for this query alone would have, without itself."""
    scores, ids = scores[: query.wanted], ids[: query.wanted]
    good = ids >= 0
    if query.row is not None:
        good &= ids != query.row
    most = query.shortlist or query.k
    return scores[good][:most], ids[good][:most]


def _finish(
    collection: Collection,
    query: Query,
    code: scipy.sparse.csr_array,
    dense: np.ndarray | None,
    encoding: float,
    scores: np.ndarray,
    ids: np.ndarray,
    searching: float,
    waited: float,
) -> Answer:
    """Re-ranks the results of one query and fetches their embeddings, as far as it asks for it."""
    seconds = {"wait": waited, "encode": encoding, "search": searching}
    if query.shortlist is not None and len(ids):
        start = time.perf_counter()
        assert collection.reranker is not None
        assert dense is not None
        best_scores, best_ids = collection.reranker.rerank(dense, ids[None], min(query.k, len(ids)))
        scores, ids = best_scores[0], best_ids[0]
        seconds["rerank"] = time.perf_counter() - start
    codes = collection.index.reconstruct(ids) if query.codes else None
    return Answer(code, scores, ids, codes, seconds)
