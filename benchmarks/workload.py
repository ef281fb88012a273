"""The workload of the search benchmark: made-up rows like trained ones, and queries among them."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
import scipy.sparse

_MOST_BATCHES = 100_000  # of a part: each has a seed of its own


def popularities(dims: int, rng: np.random.Generator) -> np.ndarray:
    """How often each dimension is used, as shares: from a gamma distribution of shape 6."""
    drawn = rng.gamma(6.0, size=dims)
    shares: np.ndarray = drawn / drawn.sum()
    return shares


def make_workload(
    rows: int,
    dims: int,
    nnz: int,
    queries: int,
    signed: bool = False,
    seed: int = 0,
    popularity: np.ndarray | None = None,
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Unit-norm sparse rows in clusters of 20, and queries from the same clusters.

    A cluster ("identity") has `nnz` dimensions, drawn without replacement by popularities from a
    gamma distribution of shape 6, which makes the sub-optimality ratio about 1 + 1/6, and
    exponential weights. A row keeps each of them with probability 0.8, times exp(N(0, 0.4^2)), and
    adds about 0.2 nnz dimensions of its own with half the weight. Rows are in random order.

    Workloads of other seeds have other popularities, unless they are given `popularity`: then
    they are parts of one larger workload.
    """
    rng = np.random.default_rng(seed)
    nnz = min(nnz, dims)
    if popularity is None:
        popularity = popularities(dims, rng)
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


def batches(
    rows: int, dims: int, nnz: int, queries: int, batch_rows: int = 100_000, part: int = 0
) -> Iterator[tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]]:
    """Yields one large workload, `batch_rows` rows at a time, each with its share of the queries.

    All batches have the same popularities of dimensions, and equally many queries come from the
    clusters of each: queries are drawn as the rows are.

    Args:
        rows: of all batches.
        dims: see `make_workload`.
        nnz: see `make_workload`.
        queries: of all batches.
        batch_rows: rows per batch.
        part: rows of other parts are others, of the same distribution.
    """
    begins = range(0, rows, batch_rows)
    shares = np.diff(np.linspace(0, queries, len(begins) + 1).astype(int))
    for number, (begin, share) in enumerate(zip(begins, shares, strict=True)):
        size, seed = min(batch_rows, rows - begin), part * _MOST_BATCHES + number
        yield one_batch(size, dims, nnz, int(share), seed)


def one_batch(
    rows: int, dims: int, nnz: int, queries: int, seed: int
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Returns the batch of a seed: see `batches`."""
    popularity = popularities(dims, np.random.default_rng(0))
    return make_workload(rows, dims, nnz, queries, seed=seed, popularity=popularity)


@dataclasses.dataclass(frozen=True)
class Workload:
    """The input of all methods."""

    database: scipy.sparse.csr_array
    queries: scipy.sparse.csr_array
    k: int
    threshold: float | None
    num_threads: int = 1
    dense_dims: int = 512

    @functools.cached_property
    def single(self) -> list[scipy.sparse.csr_array]:
        """The queries as matrices of one row, made beforehand: slicing is slow in SciPy."""
        return [self.queries[i : i + 1] for i in range(self.queries.shape[0])]

    @functools.cached_property
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
