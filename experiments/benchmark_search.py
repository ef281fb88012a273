r"""Times exact sparse search beside everything else that answers the same queries.

    python -m sparse_embed.experiments.benchmark_search --output=runs/search_speed.json
    python -m sparse_embed.experiments.benchmark_search --k=10 --methods=Algorithm1,SINDI
    python -m sparse_embed.experiments.benchmark_search --growth --output=runs/search_speed.json

The workload is made up (see `make_workload`), or read from `--database` and `--query_file`, CSR
matrices in SciPy's `.npz`. Methods are built one after the other and then timed in turns, query by
query, so that what else the machine does meets all of them alike. Exact methods must agree, or the
script fails. Of an approximate method the fastest settings that reach `--min_recall` are shown.
sparse_dot_topn, Seismic (pyseismic-lsr) and SINDI (pyvsag) take part where they are installed.
`--growth` also times SparseIndex and Algorithm 1 over numbers of rows and of non-zeros, and draws
the times beside the output.
"""

import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from absl import flags

from sparse_embed.common.files import atomic_path
from sparse_embed.experiments.provenance import provenance
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.retrieval import DATABASE, THRESHOLD, K
from sparse_embed.retrieval import (
    Algorithm1,
    DenseSearch,
    HNSWSearch,
    IVFPQSearch,
    LSHSearch,
    PCASearch,
    SparseIndex,
    flops_per_row,
    suboptimality_ratio,
)

Search = Callable[[int], tuple[np.ndarray, np.ndarray]]

_ROWS = flags.DEFINE_integer("rows", 999_000, "Rows of the database.", lower_bound=1)
_DIMS = flags.DEFINE_integer("dims", 1024, "Dimensions of the sparse rows.", lower_bound=1)
_NNZ = flags.DEFINE_integer("nnz", 32, "Mean non-zeros per row, roughly.", lower_bound=1)
_NUM_QUERIES = flags.DEFINE_integer(
    "num_queries", 200, "How many queries are timed.", lower_bound=1
)
_SIGNED = flags.DEFINE_bool("signed", False, "Whether values have random signs.")
_QUERY_FILE = flags.DEFINE_string("query_file", None, "Queries that go with --database.")
_NUM_THREADS = flags.DEFINE_integer(
    "num_threads", os.cpu_count() or 1, "Threads of the rows that use several.", lower_bound=1
)
_METHODS = flags.DEFINE_list("methods", [], "Which methods to time; empty for all there are.")
_DENSE_DIMS = flags.DEFINE_integer("dense_dims", 512, "Width of dense embeddings.", lower_bound=8)
_MIN_RECALL = flags.DEFINE_float(
    "min_recall", 0.99, "Recall that approximate methods must reach.", lower_bound=0, upper_bound=1
)
_SEED = flags.DEFINE_integer("workload_seed", 0, "Seed of the workload.")
_GROWTH = flags.DEFINE_bool("growth", False, "Whether to time other sizes and densities too.")


def make_workload(
    rows: int, dims: int, nnz: int, queries: int, signed: bool = False, seed: int = 0
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Unit-norm sparse rows in clusters of 20, and queries from the same clusters.

    A cluster ("identity") has `nnz` dimensions, drawn without replacement by popularities from a
    gamma distribution of shape 6, which makes the sub-optimality ratio about 1 + 1/6, and
    exponential weights. A row keeps each of them with probability 0.8, times exp(N(0, 0.4^2)), and
    adds about 0.2 nnz dimensions of its own with half the weight. Rows are in random order.
    """
    rng = np.random.default_rng(seed)
    nnz = min(nnz, dims)
    popularity = rng.gamma(6.0, size=dims)
    popularity /= popularity.sum()
    cumulative = np.cumsum(popularity)
    total, own = rows + queries, max(1, round(0.21 * nnz))
    identities = -(-total // 20)

    def signs(shape: tuple[int, ...]) -> np.ndarray | np.float32:
        return rng.choice(np.array([-1, 1], np.float32), shape) if signed else np.float32(1)

    core = np.empty((identities, nnz), np.int32)
    for begin in range(0, identities, 10_000):
        # The nnz smallest of exponential times with these rates: weighted, without replacement.
        times = rng.exponential(size=(len(core[begin : begin + 10_000]), dims)) / popularity
        core[begin : begin + 10_000] = np.argpartition(times, nnz - 1, axis=1)[:, :nnz]
    weights = rng.exponential(size=core.shape).astype(np.float32) * signs(core.shape)
    identity = rng.permutation(np.repeat(np.arange(identities), 20)[:total])
    parts = []
    for begin in range(0, total, 100_000):
        members = identity[begin : begin + 100_000]
        shared = weights[members] * np.exp(rng.normal(0, 0.4, (len(members), nnz)))
        shared *= rng.random(shared.shape) < 0.8
        extra = 0.5 * rng.exponential(size=(len(members), own))
        columns = np.searchsorted(cumulative, rng.random(extra.shape)).clip(0, dims - 1)
        values = np.concatenate([shared, extra * signs(extra.shape)], axis=1).astype(np.float32)
        part = scipy.sparse.csr_array(
            (
                values.ravel(),
                np.concatenate([core[members], columns], axis=1).ravel(),
                np.arange(0, values.size + 1, values.shape[1]),
            ),
            shape=(len(members), dims),
        )
        part.sum_duplicates()
        part.eliminate_zeros()
        norms = np.sqrt(part.multiply(part).sum(axis=1))
        part.data /= np.repeat(np.maximum(norms, 1e-12), np.diff(part.indptr)).astype(np.float32)
        parts.append(part)
    x = scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))
    return x[:rows], x[rows:]


@dataclasses.dataclass
class Method:
    """A built method: `search(i)` answers query i with `(scores, ids)`, unused ids -1."""

    name: str
    search: Search
    settings: str = ""
    exact: bool = True
    nbytes: int | None = None
    build_seconds: float = 0.0
    batch: int = 1  # queries that one call answers
    truth: str = "SparseIndex"  # the method whose results are the right ones


@dataclasses.dataclass(frozen=True)
class Workload:
    """What all methods get."""

    database: scipy.sparse.csr_array
    queries: scipy.sparse.csr_array
    k: int
    threshold: float | None
    num_threads: int
    dense_dims: int

    @functools.cached_property
    def single(self) -> list[scipy.sparse.csr_array]:
        """The queries as matrices of one row, made beforehand: SciPy takes its time over slices."""
        return [self.queries[i : i + 1] for i in range(self.queries.shape[0])]

    def query(self, i: int) -> scipy.sparse.csr_array:
        """Query i as a matrix of one row."""
        return self.single[i]

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Unit-norm dense embeddings of the same items: random projections of the sparse ones."""
        rng = np.random.default_rng(0)
        projection = rng.normal(size=(self.database.shape[1], self.dense_dims)).astype(np.float32)

        def project(x: scipy.sparse.csr_array) -> np.ndarray:
            out = np.empty((x.shape[0], self.dense_dims), np.float32)
            for begin in range(0, len(out), 50_000):
                part = x[begin : begin + 50_000] @ projection
                norms = np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12)
                out[begin : begin + 50_000] = part / norms
            return out

        return project(self.database), project(self.queries)

    def best(self, scores: np.ndarray, ids: np.ndarray | None = None) -> tuple[Any, Any]:
        """Threshold and top k of one score vector, like `SparseIndex.search` for one query."""
        ids = np.arange(len(scores)) if ids is None else ids
        if self.threshold is not None:
            kept = np.flatnonzero(scores >= np.float32(self.threshold))
            scores, ids = scores[kept], ids[kept]
        if len(scores) > self.k:
            kept = np.argpartition(-scores, self.k - 1)[: self.k]
            scores, ids = scores[kept], ids[kept]
        order = np.lexsort((ids, -scores))
        return scores[order], ids[order]


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """What `make` returns, and the seconds it took."""
    begin = time.perf_counter()
    made = make()
    return made, time.perf_counter() - begin


def sparse_index(work: Workload) -> Iterator[Method]:
    """SparseIndex: one query and one thread at a time, all threads, and batches."""
    index, seconds = timed(lambda: SparseIndex.build(work.database))
    size = index.nbytes
    for name, threads, batch in (
        ("SparseIndex", 1, 1),
        ("SparseIndex, all threads", work.num_threads, 1),
        ("SparseIndex, batch", 1, work.queries.shape[0]),
        ("SparseIndex, batch, all threads", work.num_threads, work.queries.shape[0]),
    ):

        def search(i: int, threads: int = threads, batch: int = batch) -> tuple[Any, Any]:
            queries = work.query(i) if batch == 1 else work.queries
            found = index.search(queries, work.k, work.threshold, threads)
            return found if batch > 1 else (found[0][0], found[1][0])

        yield Method(name, search, f"num_threads={threads}", True, size, seconds, batch)


def algorithm1(work: Workload) -> Iterator[Method]:
    """The paper's algorithm as written."""
    index, seconds = timed(lambda: Algorithm1(work.database))

    def search(i: int) -> tuple[Any, Any]:
        scores, ids = index.search(work.query(i), work.k, work.threshold)
        return scores[0], ids[0]

    yield Method("Algorithm1", search, "", True, index.nbytes, seconds)


def scipy_product(work: Workload) -> Iterator[Method]:
    """SciPy's sparse product, then threshold and top k in NumPy."""
    transposed, seconds = timed(lambda: work.database.T.tocsr())

    def search(i: int) -> tuple[Any, Any]:
        product = work.query(i) @ transposed
        if work.threshold is not None and work.threshold > 0:
            return work.best(product.data, product.indices)
        return work.best(product.toarray()[0])

    arrays = (transposed.data, transposed.indices, transposed.indptr)
    yield Method("SciPy", search, "", True, sum(a.nbytes for a in arrays), seconds)


def dense_numpy(work: Workload) -> Iterator[Method]:
    """Exhaustive dense search with NumPy's BLAS, one thread."""
    rows, queries = work.dense()
    index = DenseSearch(rows)

    def search(i: int) -> tuple[Any, Any]:
        scores, ids = index.search(queries[i : i + 1], work.k, work.threshold)
        return scores[0], ids[0]

    settings = f"{work.dense_dims}-d"
    yield Method("NumPy dense", search, settings, True, index.nbytes, truth="NumPy dense")


def baselines(work: Workload) -> Iterator[Method]:
    """PCA and faiss' LSH, IVF-PQ and HNSW on the dense embeddings, one thread."""
    rows, queries = work.dense()
    dims, threads = work.dense_dims, work.num_threads
    wide = max(work.k, 64)
    # What makes each index, and the settings of searches that share it.
    variants: list[tuple[str, Callable[[], Any], list[dict[str, int]]]] = [
        ("PCA", functools.partial(PCASearch, rows, dims // 4, threads), [{}]),
        ("PCA", functools.partial(PCASearch, rows, dims // 2, threads), [{}]),
        ("LSH", functools.partial(LSHSearch, rows, dims, threads), [{}]),
        ("LSH", functools.partial(LSHSearch, rows, 4 * dims, threads), [{}]),
        (
            "IVF-PQ",
            functools.partial(IVFPQSearch, rows, m=dims // 8, num_threads=threads),
            [{"nprobe": n} for n in (8, 32, 128, 512)],
        ),
        (
            "HNSW",
            functools.partial(HNSWSearch, rows, m=16, ef_construction=64, num_threads=threads),
            [{"ef_search": n * wide} for n in (1, 4, 16)],
        ),
    ]
    for name, build, choices in variants:
        index, seconds = timed(build)
        for choice in choices:

            def search(i: int, index: Any = index, choice: Any = choice) -> tuple[Any, Any]:
                for key, value in choice.items():
                    setattr(index, key, value)
                scores, ids = index.search(queries[i : i + 1], work.k, work.threshold)
                return scores[0], ids[0]

            shown = index.settings | choice
            settings = " ".join(f"{key}={value}" for key, value in shown.items())
            yield Method(name, search, settings, False, index.nbytes, seconds, 1, "NumPy dense")


def dot_topn(work: Workload) -> Iterator[Method]:
    """sparse_dot_topn, one thread."""
    import sparse_dot_topn

    transposed, seconds = timed(lambda: scipy.sparse.csr_matrix(work.database.T.tocsr()))

    def search(i: int) -> tuple[Any, Any]:
        query = scipy.sparse.csr_matrix(work.query(i))
        found = sparse_dot_topn.sp_matmul_topn(
            query, transposed, work.k, threshold=work.threshold, sort=True, n_threads=1
        )
        return work.best(found.data, found.indices)

    arrays = (transposed.data, transposed.indices, transposed.indptr)
    yield Method("sparse_dot_topn", search, "", True, sum(a.nbytes for a in arrays), seconds)


def sindi(work: Workload) -> Iterator[Method]:
    """SINDI of VSAG, without pruning and with some."""
    import pyvsag

    pyvsag.set_logger_off()
    parameters = {"doc_prune_ratio": 0.0, "window_size": 50_000, "use_reorder": False}
    index = pyvsag.Index(
        "sindi",
        json.dumps(
            {
                "dtype": "sparse",
                "dim": work.database.shape[1],
                "metric_type": "ip",
                "index_param": parameters | {"term_id_limit": work.database.shape[1]},
            }
        ),
    )
    x = work.database
    _, seconds = timed(
        lambda: index.build(
            index_pointers=x.indptr.astype(np.uint32),
            indices=x.indices.astype(np.uint32),
            values=x.data.astype(np.float32),
            ids=np.arange(x.shape[0], dtype=np.int64),
        )
    )
    for ratio in (0.0, 0.1, 0.2, 0.3, 0.5, 0.7):
        settings = {"query_prune_ratio": ratio, "term_prune_ratio": 0.0, "n_candidate": work.k}
        text = json.dumps({"sindi": settings})

        def search(i: int, text: str = text) -> tuple[Any, Any]:
            query = work.query(i)
            ids, scores = index.knn_search(
                np.array([0, query.nnz], np.uint32),
                query.indices.astype(np.uint32),
                query.data,
                work.k,
                text,
            )
            return work.best(1.0 - np.ravel(scores), np.ravel(ids))

        name = "SINDI" if ratio else "SINDI, no pruning"
        yield Method(
            name, search, f"window_size=50000 query_prune_ratio={ratio}", False, None, seconds
        )


def seismic(work: Workload) -> Iterator[Method]:
    """Seismic, one thread."""
    import seismic as library

    postings = max(4000, 20 * work.k)
    text_type = library.get_seismic_string()
    tokens = np.array([str(j) for j in range(work.database.shape[1])], dtype=text_type)

    def build() -> Any:
        x = work.database
        dataset = library.SeismicDataset()
        for i in range(x.shape[0]):
            part = slice(x.indptr[i], x.indptr[i + 1])
            dataset.add_document(str(i), tokens[x.indices[part]], x.data[part])
        return library.SeismicIndex.build_from_dataset(
            dataset, n_postings=postings, doc_cut=2 * x.nnz // x.shape[0]
        )

    index, seconds = timed(build)
    for cut in (8, 16, 32):
        for factor in (0.6, 0.8, 0.9, 1.0):

            def search(i: int, cut: int = cut, factor: float = factor) -> tuple[Any, Any]:
                query = work.query(i)
                found = index.search(
                    query_id="0",
                    query_components=tokens[query.indices],
                    query_values=query.data,
                    k=work.k,
                    query_cut=cut,
                    heap_factor=factor,
                )
                scores = np.array([item[1] for item in found], np.float32)
                return work.best(scores, np.array([int(item[2]) for item in found], np.int64))

            settings = f"n_postings={postings} query_cut={cut} heap_factor={factor}"
            yield Method("Seismic", search, settings, False, None, seconds)


METHODS: dict[str, tuple[Callable[[Workload], Iterator[Method]], str | None]] = {
    "SparseIndex": (sparse_index, None),
    "Algorithm1": (algorithm1, None),
    "SciPy": (scipy_product, None),
    "dense": (dense_numpy, None),
    "baselines": (baselines, "faiss"),
    "sparse_dot_topn": (dot_topn, "sparse_dot_topn"),
    "SINDI": (sindi, "pyvsag"),
    "Seismic": (seismic, "seismic"),
}


def recall(found: list[np.ndarray], right: list[np.ndarray]) -> float:
    """Mean share of the right ids that were found; queries without results count as 1."""
    shares = []
    for ids, wanted in zip(found, right, strict=True):
        wanted = wanted[wanted >= 0]
        shares.append(np.isin(wanted, ids).mean() if len(wanted) else 1.0)
    return float(np.mean(shares))


def answers(method: Method, count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores and ids of the first `count` queries."""
    if method.batch > 1:
        scores, ids = method.search(0)
        return list(scores[:count]), list(ids[:count])
    pairs = [method.search(i) for i in range(count)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def check_exact(method: Method, right: tuple[list, list], count: int) -> None:
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
            raise app.Failure(f"{method.name} disagrees with SparseIndex: one of them is wrong")


def fastest_good(methods: list[Method], right: dict[str, tuple[list, list]], count: int) -> Method:
    """Of one approximate method's settings the fastest whose recall suffices, else the best."""
    tried = []
    for method in methods:
        (_, ids), seconds = timed(functools.partial(answers, method, count))
        tried.append((recall(ids, right[method.truth][1][:count]), seconds, method))
    good = [(seconds, method) for share, seconds, method in tried if share >= _MIN_RECALL.value]
    if good:
        return min(good, key=lambda pair: pair[0])[1]
    return max(tried, key=lambda triple: triple[0])[2]


def build_methods(work: Workload, names: list[str]) -> tuple[list[Method], dict[str, tuple]]:
    """Builds the methods, checks the exact ones, and tunes the others."""
    built: list[Method] = []
    right: dict[str, tuple[list, list]] = {}
    count = min(20, work.queries.shape[0])
    for name in names:
        make, module = METHODS[name]
        if module and importlib.util.find_spec(module) is None:
            print(f"{name} is left out: {module} is not installed")
            continue
        by_name: dict[str, list[Method]] = {}
        for method in make(work):
            by_name.setdefault(method.name, []).append(method)
            print(
                f"built {method.name} {method.settings} in {method.build_seconds:.2f} s", flush=True
            )
        for variants in by_name.values():
            first = variants[0]
            if first.truth not in right:
                if first.name != first.truth:
                    print(f"{first.name} is left out: it needs {first.truth} to be compared with")
                    continue
                right[first.truth] = answers(first, work.queries.shape[0])
            if first.exact and first.truth == "SparseIndex":
                check_exact(first, right["SparseIndex"], count)
            built.append(first if first.exact else fastest_good(variants, right, count))
    return built, right


def measure(methods: list[Method], right: dict[str, tuple], queries: int) -> list[dict[str, Any]]:
    """Times the methods in turns; slow ones take part in fewer rounds."""
    times: dict[str, list[float]] = {method.name: [] for method in methods}
    found: dict[str, list[tuple[int, np.ndarray]]] = {method.name: [] for method in methods}
    budget = 20.0  # seconds per method
    for i in range(queries):
        for method in methods:
            if sum(times[method.name]) * method.batch > budget and len(times[method.name]) >= 5:
                continue
            if method.batch > 1 and i % max(1, queries // 10):
                continue
            (_, ids), seconds = timed(
                functools.partial(method.search, 0 if method.batch > 1 else i)
            )
            times[method.name].append(seconds / method.batch)
            if method.batch == 1:
                found[method.name].append((i, ids))
    base = np.median(times[methods[0].name])
    records = []
    for method in methods:
        pairs = found[method.name]
        truth = right[method.truth][1]
        share = recall([ids for _, ids in pairs], [truth[i] for i, _ in pairs]) if pairs else 1.0
        records.append(
            {
                "method": method.name,
                "settings": method.settings,
                "milliseconds": 1e3 * float(np.median(times[method.name])),
                "milliseconds_p99": 1e3 * float(np.percentile(times[method.name], 99)),
                "calls": len(times[method.name]),
                "ratio": float(np.median(times[method.name]) / base),
                "recall": share,
                "bytes": method.nbytes,
                "build_seconds": method.build_seconds,
            }
        )
    return sorted(records, key=lambda record: record["milliseconds"])


def table(records: list[dict[str, Any]]) -> str:
    """The records as an aligned text table, fastest first."""
    head = ["method", "ms/query", "p99", "ratio", "recall", "MB", "build s", "settings"]
    lines = [head]
    for record in records:
        size = "?" if record["bytes"] is None else f"{record['bytes'] / 1e6:.0f}"
        lines.append(
            [
                record["method"],
                f"{record['milliseconds']:.3f}",
                f"{record['milliseconds_p99']:.3f}",
                f"{record['ratio']:.2f}",
                f"{record['recall']:.4f}",
                size,
                f"{record['build_seconds']:.2f}",
                record["settings"],
            ]
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def read_bandwidth() -> float:
    """Bytes per second that one thread reads from memory: the best of several sums over 400 MB."""
    array = np.ones(50_000_000)
    return array.nbytes / min(timed(array.sum)[1] for _ in range(5))


def growth(k: int, threshold: float | None, dims: int, rows: int, nnz: int) -> list[dict[str, Any]]:
    """Times over numbers of rows and of non-zeros, beside the expected multiply-adds."""
    sizes = [10_000 * 10**i for i in range(8) if 10_000 * 10**i < rows] + [rows]
    cases = [(size, nnz) for size in sizes] + [(min(rows, 100_000), n) for n in (8, 64, 128)]
    records = []
    for size, density in cases:
        database, queries = make_workload(size, dims, density, 100, _SIGNED.value, _SEED.value)
        work = Workload(database, queries, k, threshold, 1, 8)
        methods = [next(sparse_index(work)), next(algorithm1(work))]
        right = {"SparseIndex": answers(methods[0], 100)}
        check_exact(methods[1], right["SparseIndex"], 20)
        for record in measure(methods, right, 100):
            record |= {"rows": size, "nnz": density, "flops_per_row": flops_per_row(database)}
            records.append(record)
            print(
                f"{size} rows, {density} non-zeros, n sum p^2 = "
                f"{size * record['flops_per_row']:.3g}: {record['method']} "
                f"{record['milliseconds']:.3f} ms"
            )
    return records


def draw_growth(records: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Draws time per query against n * sum p_j^2, with a line of slope 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 4))
    work = np.array([record["rows"] * record["flops_per_row"] for record in records])
    for name in ("SparseIndex", "Algorithm1"):
        chosen = np.array([record["method"] == name for record in records])
        taken = np.array([record["milliseconds"] for record in records])
        axes.loglog(work[chosen], taken[chosen], "o", label=name)
    ends = np.array([work.min(), work.max()])
    axes.loglog(ends, ends * 2e-6, "--", color="grey", label="2 ns per multiply-add")
    axes.set_xlabel("multiply-adds per query, n · Σ p²")
    axes.set_ylabel("time per query, ms")
    axes.legend()
    figure.tight_layout()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)


def load_csr(flag: str, value: str | None) -> scipy.sparse.csr_array:
    """Reads a CSR matrix, or raises UsageError naming the flag."""
    path = app.existing_path(flag, value)
    try:
        return scipy.sparse.csr_array(scipy.sparse.load_npz(path)).astype(np.float32)
    except (ValueError, OSError, KeyError) as error:
        raise app.UsageError(f"--{flag}={value}: expected a SciPy .npz file ({error})") from error


def main() -> None:
    """Runs the benchmark that the flags describe."""
    output = app.writable_file("output", OUTPUT.value, ".json") if OUTPUT.value else None
    if _GROWTH.value and output is None:
        raise app.UsageError("--growth draws beside --output: expected --output=FILE.json")
    if _DENSE_DIMS.value % 8:
        raise app.UsageError(f"--dense_dims={_DENSE_DIMS.value}: expected a multiple of 8")
    names = _METHODS.value or list(METHODS)
    for name in names:
        if name not in METHODS:
            raise app.UsageError(f"--methods={name}: expected some of {', '.join(METHODS)}")
    if "SparseIndex" not in names:
        names = ["SparseIndex", *names]
    names = sorted(names, key=list(METHODS).index)
    threshold = None if THRESHOLD.value < 0 else THRESHOLD.value

    if DATABASE.value:
        database, queries = (
            load_csr("database", DATABASE.value),
            load_csr("query_file", _QUERY_FILE.value),
        )
        queries = queries[: _NUM_QUERIES.value]
        if database.shape[1] != queries.shape[1]:
            raise app.UsageError(
                f"--query_file={_QUERY_FILE.value}: expected {database.shape[1]} columns"
            )
    else:
        database, queries = make_workload(
            _ROWS.value, _DIMS.value, _NNZ.value, _NUM_QUERIES.value, _SIGNED.value, _SEED.value
        )
    figures = {
        "rows": database.shape[0],
        "dims": database.shape[1],
        "nnz": database.nnz / max(1, database.shape[0]),
        "flops_per_row": flops_per_row(database),
        "suboptimality_ratio": suboptimality_ratio(database),
        "k": K.value,
        "threshold": threshold,
        "queries": queries.shape[0],
        "signed": _SIGNED.value,
    }
    print(", ".join(f"{key}={value}" for key, value in figures.items()))
    work = Workload(database, queries, K.value, threshold, _NUM_THREADS.value, _DENSE_DIMS.value)
    methods, right = build_methods(work, names)
    records = measure(methods, right, queries.shape[0])
    print(table(records))

    index = SparseIndex.build(database[: min(database.shape[0], 100_000)])
    per_posting = index.nbytes_by_part["postings"] / max(1, database[:100_000].nnz)
    touched = per_posting * figures["flops_per_row"] * database.shape[0]
    base = next(record for record in records if record["method"] == "SparseIndex")
    bandwidth = {
        "measured_bytes_per_second": read_bandwidth(),
        "posting_bytes_per_query": touched,
        "posting_bytes_per_second": touched / (base["milliseconds"] / 1e3),
    }
    print(
        f"posting lists of a query: {touched / 1e6:.2f} MB, at the time above "
        f"{bandwidth['posting_bytes_per_second'] / 1e9:.1f} GB/s (pruning reads less); one thread "
        f"of this machine reads {bandwidth['measured_bytes_per_second'] / 1e9:.1f} GB/s"
    )
    grown = (
        growth(K.value, threshold, _DIMS.value, _ROWS.value, _NNZ.value) if _GROWTH.value else []
    )
    if output:
        content = {
            "workload": figures,
            "records": records,
            "bandwidth": bandwidth,
            "growth": grown,
            "provenance": provenance(),
        }
        with atomic_path(output) as temporary:
            temporary.write_text(json.dumps(content, indent=1))
        if grown:
            draw_growth(grown, output.with_suffix(".png"))


if __name__ == "__main__":
    app.run(main)
