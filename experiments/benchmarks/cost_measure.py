"""What the cost model is fitted on: times per query and bytes of indexes of made-up rows.

Rows of all sizes are of one distribution: batches of one workload, with the same popularities of
dimensions. There are two kinds of queries. *Near* ones have their cluster among the rows, as in one
index that holds everything. *Far* ones have it elsewhere: that is what most of many shards see, and
it takes longer, because the k-th best score, below which rows are left out, is lower.
"""

import concurrent.futures
import functools
import pathlib
from collections.abc import Iterator

import numpy as np
import scipy.sparse

from sparse_embed.common.other_load import OtherLoad
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.benchmarks.search_speed import timed
from sparse_embed.experiments.benchmarks.workload import make_workload, popularities
from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.retrieval import SparseIndex

KINDS = ("near", "far")
BATCH_ROWS = 100_000
_FAR_SEED = 1 << 30  # of rows that no index holds
_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


class Rows:
    """Made-up rows in batches, and queries of both kinds.

    Args:
        rows: how many.
        dims: see `make_workload`.
        nnz: see `make_workload`.
        queries: of each kind.
        part: rows of other parts are others, of the same distribution.
    """

    def __init__(self, rows: int, dims: int, nnz: int, queries: int, part: int = 0):
        self.rows, self._queries, self._part = rows, queries, part
        popularity = popularities(dims, np.random.default_rng(0))
        self._make = functools.partial(
            make_workload, dims=dims, nnz=nnz, signed=False, popularity=popularity
        )
        self._near: list[scipy.sparse.csr_array] = []
        self._nonzeros = 0

    @property
    def nonzeros(self) -> float:
        """Mean non-zeros of a row, once the batches were taken."""
        return self._nonzeros / self.rows

    def batches(self) -> Iterator[scipy.sparse.csr_array]:
        """Yields the rows, and keeps the near queries: equally many from each batch."""
        begins = range(0, self.rows, BATCH_ROWS)
        shares = np.diff(np.linspace(0, self._queries, len(begins) + 1).astype(int))
        self._near, self._nonzeros = [], 0
        for number, (begin, share) in enumerate(zip(begins, shares, strict=True)):
            rows, queries = self._make(
                min(BATCH_ROWS, self.rows - begin),
                queries=int(share),
                seed=self._part * 100_000 + number,
            )
            self._near.append(queries)
            self._nonzeros += rows.nnz
            yield rows

    def queries(self, kind: str) -> list[scipy.sparse.csr_array]:
        """The queries of a kind, one row each; near ones once the batches were taken."""
        if kind == "near":
            drawn = scipy.sparse.csr_array(scipy.sparse.vstack(self._near, format="csr"))
        else:
            drawn = self._make(0, queries=self._queries, seed=_FAR_SEED)[1]
        return [drawn[i : i + 1] for i in range(drawn.shape[0])]


def build(rows: Rows, path: pathlib.Path, num_threads: int) -> tuple[SparseIndex, float]:
    """Builds and saves an index; returns it mapped, as a shard has it, and the seconds to build."""
    index, seconds = timed(
        lambda: SparseIndex.build(rows.batches(), num_threads=num_threads, progress=True)
    )
    index.save(path)
    del index
    return SparseIndex.load(path), seconds


def times(
    index: SparseIndex,
    queries: dict[str, list[scipy.sparse.csr_array]],
    ks: list[int],
    rounds: int,
) -> dict[tuple[str, int], np.ndarray]:
    """Seconds per query by kind and k: one at a time on one thread, the median of the rounds.

    Rounds go through all kinds and k in turns, after one that fetches pages and is not counted.
    What disturbs a round for a while does not change the median.
    """
    taken: dict[tuple[str, int], list[list[float]]] = {
        (kind, k): [] for kind in queries for k in ks
    }
    for number in progress_bar(range(rounds + 1), unit="rounds"):
        for (kind, k), found in taken.items():
            seconds = [timed(functools.partial(index.search, q, k))[1] for q in queries[kind]]
            if number > 0:
                found.append(seconds)
    return {case: np.median(found, axis=0) for case, found in taken.items()}


def busy_ratio(index: SparseIndex, queries: list[scipy.sparse.csr_array], k: int) -> float:
    """How many times longer a query takes while another thread searches too."""

    def median(_: int = 0) -> float:
        return float(np.median([timed(functools.partial(index.search, q, k))[1] for q in queries]))

    alone = median()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return float(np.mean(list(pool.map(median, range(2))))) / alone


def measure_index(
    path: pathlib.Path,
    rows: Rows,
    ks: list[int],
    rounds: int,
    num_threads: int,
) -> list[Record]:
    """Builds one index and returns a record per kind of query and k.

    Args:
        path: the index file, which is removed at the end.
        rows: what to index.
        ks: results per query.
        rounds: see `times`.
        num_threads: threads that build.
    """
    try:
        index, seconds = build(rows, path, num_threads)
        queries = {kind: rows.queries(kind) for kind in KINDS}
        with OtherLoad() as load:
            taken = times(index, queries, ks, rounds)
        found: list[Record] = []
        for (kind, k), each in taken.items():
            asked = scipy.sparse.csr_array(scipy.sparse.vstack(queries[kind]))
            found.append(
                {
                    "rows": rows.rows,
                    "kind": kind,
                    "k": k,
                    "flops_per_row": float(index.flops(asked).mean() / rows.rows),
                    "nonzeros": float(asked.nnz / asked.shape[0]),
                    "row_nonzeros": rows.nonzeros,
                    "bytes_per_row": index.nbytes / rows.rows,
                    "build_seconds": seconds,
                    "other_load": load.cores,
                    "busy_ratio": busy_ratio(index, queries[kind], k),
                    **percentiles(each),
                }
            )
        return found
    finally:
        path.unlink(missing_ok=True)


def measure_spread(
    path: pathlib.Path, shards: list[Rows], ks: list[int], rounds: int, num_threads: int
) -> dict[int, np.ndarray]:
    """Seconds of the same far queries on shards of equal size: (queries, shards) by k."""
    columns: dict[int, list[np.ndarray]] = {k: [] for k in ks}
    for rows in shards:
        try:
            index, _ = build(rows, path, num_threads)
            taken = times(index, {"far": rows.queries("far")}, ks, rounds)
        finally:
            path.unlink(missing_ok=True)
        for k in ks:
            columns[k].append(taken["far", k])
    return {k: np.stack(found, axis=1) for k, found in columns.items()}


def percentiles(taken: np.ndarray) -> Record:
    """The distribution of times, in milliseconds."""
    found = {f"p{p}": float(1e3 * np.percentile(taken, p)) for p in _PERCENTILES}
    return {"mean": float(1e3 * taken.mean()), **found}


def merge(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best of what shards found for one query, (shards, k) each; ties by lower id."""
    scores, ids = scores.ravel(), ids.ravel()
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= least)
        scores, ids = scores[kept], ids[kept]
    order = np.lexsort((ids, -scores))[:k]
    return scores[order], ids[order]


def measure_merge(shards: list[int], ks: list[int], repeats: int = 100) -> list[Record]:
    """Times of merging sorted results of one query, as `merge` does it."""
    rng = np.random.default_rng(0)
    found: list[Record] = []
    for count in shards:
        for k in ks:
            scores = -np.sort(-rng.random((count, k), np.float32), axis=1)
            ids = rng.permutation(count * k).reshape(count, k)
            taken = [timed(functools.partial(merge, scores, ids, k))[1] for _ in range(repeats)]
            found.append({"shards": count, "k": k, "milliseconds": 1e3 * float(np.median(taken))})
    return found
