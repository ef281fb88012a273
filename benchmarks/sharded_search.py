"""The same rows in one index and in shards on Ray: the same results, and the time of a batch."""

import functools
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from workload import batches

from sparse_embed.common.failures import Failure
from sparse_embed.common.memory import peak_bytes
from sparse_embed.common.other_load import OtherLoad
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.timing import timed
from sparse_embed.experiments.core.records import Record
from sparse_embed.retrieval import ShardedIndex, SparseIndex, shard_folder
from sparse_embed.retrieval.merging import merge_results

SHARDS = "shards"
ONE = "one.index"
BATCH = 64
_ROUNDS = 30

Answer = tuple[np.ndarray, np.ndarray]


def build(
    folder: pathlib.Path,
    rows: int,
    dims: int,
    nnz: int,
    queries: int,
    batch_rows: int,
    shards: int,
    num_threads: int,
) -> tuple[list[Record], SparseIndex]:
    """Builds both indexes in a folder, where they are not there yet; returns the mapped one index.

    The shards come first, so that their peak memory is not that of the one index.
    """
    found: list[Record] = []

    def make() -> Iterator[scipy.sparse.csr_array]:
        return (batch for batch, _ in batches(rows, dims, nnz, queries, batch_rows))

    def note(stage: str, seconds: float) -> None:
        found.append({"stage": stage, "seconds": seconds, "peak_bytes": peak_bytes()})
        print(f"{stage}: {seconds:.4g} s, peak {peak_bytes() / 2**30:.2f} GiB", flush=True)

    if not (folder / SHARDS / shard_folder.MANIFEST).exists():
        create = functools.partial(shard_folder.create, folder / SHARDS, make(), shards, rows=rows)
        note(f"build {shards} shards", timed(lambda: create(None, None, num_threads, True))[1])
    if not (folder / ONE).exists():
        build_one = functools.partial(SparseIndex.build, make(), None, num_threads, True)
        index, seconds = timed(build_one)
        note("build one index", seconds)
        index.save(folder / ONE)
        del index
    one = SparseIndex.load(folder / ONE)
    manifest = shard_folder.read(folder / SHARDS)
    if one.shape != (rows, dims) or sum(map(len, manifest.shards)) != rows:
        raise Failure(
            f"--index_folder={folder} holds indexes of other sizes: expected an empty one"
        )
    first, _ = next(batches(rows, dims, nnz, queries, batch_rows))
    if (one.reconstruct(np.arange(10)) != first[:10]).nnz:
        raise Failure(
            f"--index_folder={folder} holds rows of other --nnz, --compared or --batch_rows"
        )
    if len(manifest.shards) != shards:
        raise Failure(f"--index_folder={folder} holds {len(manifest.shards)} shards, not {shards}")
    return found, one


def make_queries(
    rows: int, dims: int, nnz: int, queries: int, batch_rows: int
) -> list[scipy.sparse.csr_array]:
    """Returns the queries of the rows that `build` takes, shuffled, in batches of 64.

    They come from the clusters of all batches of rows, so all rows are drawn again.
    """
    drawn = scipy.sparse.vstack(
        [near for _, near in batches(rows, dims, nnz, queries, batch_rows)], format="csr"
    )
    drawn = drawn[np.random.default_rng(0).permutation(queries)]
    return [drawn[i : i + BATCH] for i in range(0, queries, BATCH)]


def same(got: Answer, wanted: Answer) -> bool:
    """Whether two answers are equal, bit for bit."""
    return all(
        one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
        for one, two in zip(got, wanted, strict=True)
    )


def variants(rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the kinds of search that are compared."""
    rng = np.random.default_rng(0)
    yield "plain", {}
    yield "threshold", {"threshold": 0.25}
    yield "few allowed", {"allowed": rng.choice(rows, min(rows, 2000), replace=False)}
    yield "mask allowed", {"allowed": rng.random(rows) < 0.3}
    yield "mask forbidden", {"forbidden": rng.random(rows) < 0.3}


def compare(
    index: ShardedIndex, one: SparseIndex, queries: list[scipy.sparse.csr_array], k: int
) -> list[Record]:
    """Raises Failure unless both give the same results; returns how many queries were compared."""
    found: list[Record] = []
    with progress_bar(total=5 * len(queries), unit="batches") as bar:
        for name, options in variants(one.shape[0]):
            for batch in queries:
                if not same(index.search(batch, k, **options), one.search(batch, k, **options)):
                    raise Failure(f"the shards' results differ from those of one index: {name}")
                bar.update()
            count = sum(batch.shape[0] for batch in queries)
            found.append({"stage": f"compare, {name}", "queries": count, "different": 0})
    print(f"{len(found)} x {count} queries: the same results, bit for bit", flush=True)
    return found


def measure(
    index: ShardedIndex,
    one: SparseIndex,
    queries: list[scipy.sparse.csr_array],
    k: int,
    num_threads: int,
) -> list[Record]:
    """Times a batch of 64 queries, in turns; `seconds` are medians.

    Where no row is allowed nothing is searched: what a batch takes then with Ray, less what it
    takes with the same shards in this process, is the cost of Ray.
    """
    folder, manifest = index.folder, shard_folder.read(index.folder)
    local = [shard_folder.open_shard(folder, shard, manifest.dims) for shard in manifest.shards]

    def in_process(batch: scipy.sparse.csr_array, threads: int = 1, **options: Any) -> Answer:
        return merge_results([part.search(batch, k, None, threads, **options) for part in local], k)

    none = np.empty(0, np.int64)
    ways: dict[str, Callable[[scipy.sparse.csr_array], Any]] = {
        "one index, 1 thread": lambda batch: one.search(batch, k),
        f"one index, {num_threads} threads": lambda batch: one.search(batch, k, None, num_threads),
        "shards in this process, 1 thread": in_process,
        f"shards in this process, {num_threads} threads": (
            lambda batch: in_process(batch, num_threads)
        ),
        "shards on Ray": lambda batch: index.search(batch, k),
        "no row allowed, shards in this process": lambda batch: in_process(batch, allowed=none),
        "no row allowed, shards on Ray": lambda batch: index.search(batch, k, allowed=none),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    busy = [_other_load()]
    for place in range(_ROUNDS + 1):
        for name, search in ways.items():
            seconds = timed(functools.partial(search, queries[place % len(queries)]))[1]
            if place:  # the first round warms up
                taken[name].append(seconds)
    busy.append(_other_load())
    found: list[Record] = [
        {
            "stage": f"batch of {BATCH}, {name}",
            "seconds": float(np.median(times)),
            "p95_seconds": float(np.quantile(times, 0.95)),
        }
        for name, times in taken.items()
    ]
    empty = [
        float(np.median(taken[f"no row allowed, shards {w}"]))
        for w in ("in this process", "on Ray")
    ]
    found.append({"stage": f"batch of {BATCH}, cost of Ray", "seconds": empty[1] - empty[0]})
    found.append({"stage": "other load before and after", "cores": busy})
    print(f"other processes kept {busy[0]:.2f} cores busy before, {busy[1]:.2f} after")
    for record in found[:-1]:
        print(f"{record['stage']}: {1000 * record['seconds']:.4g} ms", flush=True)
    return found


def _other_load() -> float:
    """How many cores are busy while we are idle: what would disturb the times."""
    with OtherLoad() as load:
        time.sleep(2)
    return load.cores
