"""Times methods of search in turns, so that other load on the machine affects all of them alike."""

import dataclasses
import functools
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from engines import ENGINES
from workload import Workload, make_workload

from sparse_embed.common.failures import Failure
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.retrieval import BASELINES, Baseline, SparseIndex, flops_per_row

BUDGET = 20.0  # seconds per method
CHECKED = 20  # queries that exact methods must agree on
TUNED = 100  # queries that choose the settings of the others
TRUTH = {"sparse": "SparseIndex", "dense": "dense"}  # the methods whose results are right

Answers = tuple[list[np.ndarray], list[np.ndarray]]
Built = dict[tuple[str, str], tuple[Any, float]]  # an index and its seconds, by name and settings


def all_methods() -> dict[str, Baseline]:
    """Returns every method by name: engines on sparse rows, baselines on dense ones."""
    return ENGINES | BASELINES


@dataclasses.dataclass
class Method:
    """A built method: `search(i)` answers query i with `(scores, ids)`, unused ids -1."""

    name: str
    row: Baseline
    search: Callable[[int], tuple[np.ndarray, np.ndarray]]
    settings: dict[str, Any]
    nbytes: int | None
    build_seconds: float
    batch: int = 1  # queries that one call answers

    @property
    def truth(self) -> str:
        """Name of the method whose results are right."""
        return TRUTH[self.row.over]


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """Returns the result of `make`, and the seconds it took."""
    begin = time.perf_counter()
    made = make()
    return made, time.perf_counter() - begin


def build(name: str, work: Workload, built: Built | None = None) -> list[Method]:
    """Builds a method at every setting of its grids; SparseIndex also with threads and batches.

    What `built` has is taken from it, and it gets the rest: other `k` need no other index.
    """
    built = {} if built is None else built
    row = all_methods()[name]
    rows, queries = (work.database, work.queries) if row.over == "sparse" else work.dense
    single = work.single if row.over == "sparse" else [q[None] for q in queries]
    found = []
    for setting in row.builds(*rows.shape):
        key = name, repr(setting)
        if key not in built:
            make = functools.partial(row.search, rows, **setting, num_threads=work.num_threads)
            built[key] = timed(make)
            print(f"built {name} {setting} in {built[key][1]:.2f} s", flush=True)
        index, seconds = built[key]
        for query in row.queries(setting):
            variants = [(name, 1, 1)]
            if name == "SparseIndex":
                variants += [
                    ("SparseIndex, all threads", work.num_threads, 1),
                    ("SparseIndex, batch", 1, len(single)),
                    ("SparseIndex, batch, all threads", work.num_threads, len(single)),
                ]
                variants += [
                    (f"SparseIndex, batch, {threads} threads", threads, len(single))
                    for threads in (2, 4, 8, 16, 32, 64)
                    if threads < work.num_threads
                ]
            for label, threads, batch in variants:

                def search(
                    i: int,
                    index: Any = index,
                    query: dict[str, Any] = query,
                    threads: int = threads,
                    batch: int = batch,
                ) -> tuple[Any, Any]:
                    for attribute, value in query.items():
                        setattr(index, attribute, value)
                    asked = single[i] if batch == 1 else queries
                    scores, ids = index.search(asked, work.k, work.threshold, threads)
                    return (scores[0], ids[0]) if batch == 1 else (scores, ids)

                settings = index.settings | setting | query
                if len(variants) > 1:
                    settings["num_threads"] = threads
                found.append(Method(label, row, search, settings, index.nbytes, seconds, batch))
    return found


def answers(method: Method, count: int) -> Answers:
    """Scores and ids of the first `count` queries."""
    if method.batch > 1:
        scores, ids = method.search(0)
        return list(scores[:count]), list(ids[:count])
    pairs = [method.search(i) for i in range(count)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def recall(found: list[np.ndarray], right: list[np.ndarray]) -> float:
    """Mean share of the right ids that were found; queries without results count as 1."""
    shares = []
    for ids, wanted in zip(found, right, strict=True):
        wanted = wanted[wanted >= 0]
        shares.append(np.isin(wanted, ids).mean() if len(wanted) else 1.0)
    return float(np.mean(shares))


def check_exact(method: Method, right: Answers, count: int) -> None:
    """Raises if an exact sparse method does not find the same rows, up to rounding at the edge."""
    for scores, ids, want, want_ids in zip(*answers(method, count), *right, strict=False):
        scores, ids = scores[ids >= 0], ids[ids >= 0]
        want, want_ids = want[want_ids >= 0], want_ids[want_ids >= 0]
        size = min(len(scores), len(want))
        edge = want[-1] + 1e-5 if len(want) else np.inf
        same = np.allclose(scores[:size], want[:size], atol=1e-5) and (
            set(ids[scores > edge]) == set(want_ids[want > edge])
        )
        if method.name.startswith(("SparseIndex", "Algorithm1")):
            same = np.array_equal(ids, want_ids) and np.array_equal(scores, want)
        if not same:
            raise Failure(f"{method.name} disagrees with SparseIndex: one of them is wrong")


def fastest_good(methods: list[Method], right: Answers, count: int, min_recall: float) -> Method:
    """Returns the fastest setting of an approximate method whose recall suffices, else the best."""
    tried = []
    for method in methods:
        found = [timed(functools.partial(method.search, i)) for i in range(count)]
        share = recall([ids for (_, ids), _ in found], right[1][:count])
        tried.append((share, float(np.median([seconds for _, seconds in found])), method))
    good = [(seconds, method) for share, seconds, method in tried if share >= min_recall]
    if good:
        return min(good, key=lambda pair: pair[0])[1]
    return max(tried, key=lambda triple: triple[0])[2]


def build_all(
    work: Workload, names: list[str], min_recall: float, indexes: Built | None = None
) -> tuple[list[Method], dict[str, Answers]]:
    """Builds the methods, checks the exact ones, and tunes the others; returns the truth too."""
    built: list[Method] = []
    right: dict[str, Answers] = {}
    count = min(CHECKED, work.queries.shape[0])
    for name in names:
        row = all_methods()[name]
        if row.module and importlib.util.find_spec(row.module) is None:
            print(f"{name} is left out: {row.module} is not installed")
            continue
        if TRUTH[row.over] not in (name, *right):
            print(f"{name} is left out: it is compared with {TRUTH[row.over]}, which is absent")
            continue
        found = build(name, work, indexes)
        if not found:
            print(f"{name} is left out: it has no setting for {work.dense_dims} dimensions")
            continue
        if name in TRUTH.values():
            right[name] = answers(found[0], work.queries.shape[0])
        if not row.exact:
            some = min(TUNED, work.queries.shape[0])
            built.append(fastest_good(found, right[TRUTH[row.over]], some, min_recall))
            continue
        for method in found:
            if row.over == "sparse":
                check_exact(method, right["SparseIndex"], count)
            built.append(method)
    return built, right


def measure(methods: list[Method], right: dict[str, Answers], queries: int) -> list[Record]:
    """Times the methods in turns; slow ones take part in fewer rounds. Fastest first."""
    times: dict[str, list[float]] = {method.name: [] for method in methods}
    found: dict[str, list[tuple[int, np.ndarray]]] = {method.name: [] for method in methods}
    for i in range(queries):
        for method in methods:
            taken = times[method.name]
            if sum(taken) * method.batch > BUDGET and len(taken) >= 5:
                continue
            if method.batch > 1 and i % max(1, queries // 10):
                continue
            (_, ids), seconds = timed(
                functools.partial(method.search, 0 if method.batch > 1 else i)
            )
            taken.append(seconds / method.batch)
            if method.batch == 1:
                found[method.name].append((i, ids))
    base = np.median(times[methods[0].name])
    records: list[Record] = []
    for method in methods:
        pairs = found[method.name]
        truth = right[method.truth][1]
        share = recall([ids for _, ids in pairs], [truth[i] for i, _ in pairs]) if pairs else 1.0
        taken = times[method.name]
        records.append(
            {
                "method": method.name,
                "setting": method.settings,
                "milliseconds_per_query": 1e3 * float(np.median(taken)),
                "milliseconds_per_query_p99": 1e3 * float(np.percentile(taken, 99)),
                "timed_queries": len(taken),
                "ratio": float(np.median(taken) / base),
                "recall": share,
                "index_bytes": method.nbytes,
                "build_seconds": method.build_seconds,
            }
        )
    return sorted(records, key=lambda record: record["milliseconds_per_query"])


def table(records: list[Record]) -> str:
    """The records as a text table, in their order."""
    head = ["method", "ms/query", "p99", "ratio", "recall", "MB", "build s", "settings"]
    rows = [
        [
            record["method"],
            f"{record['milliseconds_per_query']:.3f}",
            f"{record['milliseconds_per_query_p99']:.3f}",
            f"{record['ratio']:.2f}",
            f"{record['recall']:.4f}",
            "" if record["index_bytes"] is None else f"{record['index_bytes'] / 1e6:.0f}",
            f"{record['build_seconds']:.2f}",
            " ".join(f"{key}={value}" for key, value in record["setting"].items()),
        ]
        for record in records
    ]
    return text_table(head, rows)


def bandwidth(work: Workload, flops: float, milliseconds: float) -> Record:
    """How fast the posting lists of a query are read, and how fast one thread reads memory."""
    some = work.database[:100_000]
    per_posting = SparseIndex.build(some).nbytes_by_part["postings"] / max(1, some.nnz)
    touched = per_posting * flops * work.database.shape[0]
    return {
        "measured_bytes_per_second": read_bandwidth(),
        "posting_bytes_per_query": touched,
        "posting_bytes_per_second": touched / (milliseconds / 1e3),
    }


def read_bandwidth() -> float:
    """Bytes per second that one thread reads from memory: the best of several sums over 400 MB."""
    array = np.ones(50_000_000)
    return array.nbytes / min(timed(array.sum)[1] for _ in range(5))


def sweep(work: Workload, names: list[str], min_recall: float, built: Built) -> list[Record]:
    """Times k = 1, 10, 100 and 1000, with the threshold and without; every record has both."""
    records: list[Record] = []
    for threshold in dict.fromkeys([None, work.threshold]):
        for k in (1, 10, 100, 1000):
            case = dataclasses.replace(work, k=min(k, work.database.shape[0]), threshold=threshold)
            methods, right = build_all(case, names, min_recall, built)
            found = measure(methods, right, work.queries.shape[0])
            print(f"k={case.k}, threshold={threshold}\n{table(found)}", flush=True)
            records += [record | {"k": case.k, "threshold": threshold} for record in found]
    return records


def growth(
    work: Workload, names: list[str], min_recall: float, nnz: int, signed: bool, seed: int
) -> list[Record]:
    """Times over numbers of rows and of non-zeros, beside the expected multiply-adds.

    Args:
        work: its numbers of rows and dimensions, `k` and `threshold` are used.
        names: methods on sparse rows.
        min_recall: recall that approximate methods must reach.
        nnz: see `make_workload`.
        signed: see `make_workload`.
        seed: see `make_workload`.
    """
    rows, dims = work.database.shape
    sizes = [10_000 * 10**i for i in range(8) if 10_000 * 10**i < rows] + [rows]
    cases = [(size, nnz) for size in sizes] + [(min(rows, 100_000), n) for n in (8, 64, 128)]
    records: list[Record] = []
    for size, density in cases:
        database, queries = make_workload(size, dims, density, 100, signed, seed)
        case = Workload(database, queries, work.k, work.threshold, work.num_threads)
        methods, right = build_all(case, names, min_recall)
        for record in measure(methods, right, 100):
            record |= {"rows": size, "nnz": density, "flops_per_row": flops_per_row(database)}
            records.append(record)
            print(
                f"{size} rows, {density} non-zeros, n sum p^2 = "
                f"{size * record['flops_per_row']:.3g}: {record['method']} "
                f"{record['milliseconds_per_query']:.3f} ms"
            )
    return records
