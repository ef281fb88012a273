"""What the cost model is fitted on: times per query and bytes of indexes of made-up rows.

Rows of all sizes are of one distribution: batches of one workload, with the same popularities of
dimensions. There are two kinds of queries. *Near* ones have their cluster among the rows, as in one
index that holds everything. *Far* ones have it elsewhere: that is what most of many shards see, and
it takes longer, because the k-th best score, below which rows are left out, is lower.

Queries are timed one at a time on one core, while the other cores search the same index: they share
the bandwidth of the memory and the last cache, and a shard in use has no idle cores. What counts is
the time that the core works, not what it spends on other processes.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from workload import batches, one_batch

from sparse_embed.common.progress import progress_bar
from sparse_embed.common.reading import read_json
from sparse_embed.common.timing import timed
from sparse_embed.experiments.core.records import Record
from sparse_embed.retrieval import SparseIndex
from sparse_embed.retrieval.merging import merge_results

KS = [10, 100, 1000]
BATCH_ROWS = 100_000
_FAR_SEED = 1 << 30  # no part has it
_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def far_queries(dims: int, nnz: int, queries: int) -> scipy.sparse.csr_array:
    """Queries of clusters that no part has; the same for all parts."""
    return one_batch(0, dims, nnz, queries, _FAR_SEED)[1]


def sparsities(dims: int, nnz: int, queries: int) -> list[Record]:
    """Returns what a prediction needs of each kind of query; one batch of rows tells it."""
    rows, near = next(batches(BATCH_ROWS, dims, nnz, queries))
    index = SparseIndex.build(rows)
    return [
        {
            "kind": kind,
            "flops_per_row": float(index.flops(asked).mean() / BATCH_ROWS),
            "nonzeros": float(asked.nnz / asked.shape[0]),
            "row_nonzeros": float(rows.nnz / BATCH_ROWS),
        }
        for kind, asked in (("near", near), ("far", far_queries(dims, nnz, queries)))
    ]


@dataclasses.dataclass(frozen=True)
class Built:
    """An index file as a shard has it, mapped, with queries for it.

    Attributes:
        index: the index.
        queries: by kind, one row each.
        row_nonzeros: mean of the rows.
        build_seconds: making the rows up included.
    """

    index: SparseIndex
    queries: dict[str, list[scipy.sparse.csr_array]]
    row_nonzeros: float
    build_seconds: float

    @classmethod
    def open(cls, path: pathlib.Path, most: int | None = None) -> "Built":
        """Opens what `build` wrote, with at most so many queries of each kind."""
        facts = read_json(_facts_path(path), "what --stage=build writes")
        size = (facts["dims"], facts["nnz"], facts["queries"])
        near = scipy.sparse.load_npz(_queries_path(path))
        drawn = {"near": near, "far": far_queries(*size)}
        chosen = {
            kind: np.unique(np.linspace(0, found.shape[0] - 1, most or found.shape[0]).astype(int))
            for kind, found in drawn.items()
        }
        return cls(
            SparseIndex.load(path),
            {kind: [drawn[kind][i : i + 1] for i in places] for kind, places in chosen.items()},
            facts["row_nonzeros"],
            facts["build_seconds"],
        )


def build(
    path: pathlib.Path,
    rows: int,
    dims: int,
    nnz: int,
    queries: int,
    num_threads: int,
    part: int = 0,
) -> None:
    """Builds an index and saves it, with its near queries and facts in files beside it."""
    near: list[scipy.sparse.csr_array] = []
    nonzeros = 0

    def stream() -> Iterator[scipy.sparse.csr_array]:
        nonlocal nonzeros
        for batch, asked in batches(rows, dims, nnz, queries, part=part):
            near.append(asked)
            nonzeros += batch.nnz
            yield batch

    index, seconds = timed(
        lambda: SparseIndex.build(stream(), num_threads=num_threads, progress=True)
    )
    index.save(path)
    facts = {"dims": dims, "nnz": nnz, "queries": queries, "build_seconds": seconds}
    scipy.sparse.save_npz(_queries_path(path), scipy.sparse.vstack(near, format="csr"))
    _facts_path(path).write_text(json.dumps(facts | {"row_nonzeros": nonzeros / rows}))


def remove(path: pathlib.Path) -> None:
    """Removes what `build` wrote."""
    for file in (path, _queries_path(path), _facts_path(path)):
        file.unlink(missing_ok=True)


def _queries_path(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".queries.npz")


def _facts_path(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".facts.json")


def core_seconds(search: Callable[[], Any]) -> float:
    """Seconds that this thread's core works on a search; other processes' turns do not count."""
    begin = time.thread_time()
    search()
    return time.thread_time() - begin


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
            seconds = [core_seconds(functools.partial(index.search, q, k)) for q in queries[kind]]
            if number > 0:
                found.append(seconds)
    return {case: np.median(found, axis=0) for case, found in taken.items()}


@contextlib.contextmanager
def busy_cores(path: pathlib.Path) -> Iterator[None]:
    """Keeps all other cores busy with searches of the same file, as those of a busy shard are."""
    others = (os.cpu_count() or 1) - 1
    processes = [
        multiprocessing.get_context("spawn").Process(
            target=_search_forever, args=(path,), daemon=True
        )
        for _ in range(others)
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _search_forever(path: pathlib.Path) -> None:
    os.nice(19)  # it is to fill idle cores, not to take turns with what is timed
    built = Built.open(path)
    for query, k in itertools.cycle(itertools.product(built.queries["far"], KS)):
        built.index.search(query, k)


def measure_index(path: pathlib.Path, ks: list[int], queries: int, rounds: int) -> list[Record]:
    """Times an index that `build` wrote: a record per kind of query and k.

    Args:
        path: the index file.
        ks: results per query.
        queries: of each kind, at most.
        rounds: see `times`.
    """
    built = Built.open(path, queries)
    index, rows = built.index, built.index.shape[0]
    with busy_cores(path):
        taken = times(index, built.queries, ks, rounds)
    found: list[Record] = []
    for (kind, k), each in taken.items():
        asked = scipy.sparse.csr_array(scipy.sparse.vstack(built.queries[kind], format="csr"))
        found.append(
            {
                "rows": rows,
                "dims": index.shape[1],
                "kind": kind,
                "k": k,
                "flops_per_row": float(index.flops(asked).mean() / rows),
                "nonzeros": float(asked.nnz / asked.shape[0]),
                "row_nonzeros": built.row_nonzeros,
                "bytes_per_row": index.nbytes / rows,
                "build_seconds": built.build_seconds,
                **percentiles(each),
            }
        )
    return found


def measure_spread(paths: list[pathlib.Path], ks: list[int], rounds: int) -> dict[int, np.ndarray]:
    """Seconds of the same far queries on shards of equal size: (queries, shards) by k."""
    found = []
    for path in paths:
        built = Built.open(path)
        with busy_cores(path):
            found.append(times(built.index, {"far": built.queries["far"]}, ks, rounds))
    return {k: np.stack([taken["far", k] for taken in found], axis=1) for k in ks}


def percentiles(taken: np.ndarray) -> Record:
    """The distribution of times, in milliseconds."""
    found = {f"p{p}": float(1e3 * np.percentile(taken, p)) for p in _PERCENTILES}
    return {"mean": float(1e3 * taken.mean()), **found}


def measure_merge(shards: list[int], ks: list[int], repeats: int = 100) -> list[Record]:
    """Times of merging sorted results of one query, as `ShardedIndex` does it."""
    rng = np.random.default_rng(0)
    found: list[Record] = []
    for count in shards:
        for k in ks:
            scores = -np.sort(-rng.random((count, k), np.float32), axis=1)
            ids = rng.permutation(count * k).reshape(count, k)
            parts = list(zip(scores[:, None], ids[:, None], strict=True))
            merge = functools.partial(merge_results, parts, k)
            taken = [timed(merge)[1] for _ in range(repeats)]
            found.append({"shards": count, "k": k, "milliseconds": 1e3 * float(np.median(taken))})
    return found
