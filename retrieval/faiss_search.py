"""Baselines that faiss provides: LSH and IVF-PQ as in the paper (section 6), and HNSW.

All take unit-norm embeddings and answer as `SparseIndex.search` does: arrays (n, k), best first,
unused places -inf / -1. Scores approximate cosines; rows that score the same are in the order of
their ids, but which of several rows with the k-th best score are returned is up to faiss.

Settings that only a search needs (`nprobe`, `ef_search`) are attributes that can be set between
searches, so that one index serves a whole sweep.
"""

import functools
import logging
import types
import warnings
from typing import Any

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.common.extras import require
from sparse_embed.retrieval.threads import faiss_threads
from sparse_embed.retrieval.unit_rows import unit_rows

_LSH_BATCH = 65_536  # rows whose projections, 4 bytes per bit, are in memory together
# Fewer rows per centroid train it badly: faiss itself warns below this.
ROWS_PER_CENTROID = 39


class FaissSearch:
    """The common part of the searches below; `index` is a faiss index that holds the rows."""

    def __init__(self, index: Any):
        self._index = index

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, d) of the database."""
        return self._index.ntotal, self._index.d

    @functools.cached_property
    def nbytes(self) -> int:
        """Bytes of the index, as faiss would write it to a file."""
        faiss = _faiss(type(self))
        sizes: list[int] = []
        writer = faiss.PyCallbackIOWriter(lambda part: sizes.append(len(part)))
        faiss.write_index(self._index, writer)
        return sum(sizes)

    def search(
        self,
        queries: np.ndarray,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the `k` best rows for each query, as far as the method can tell.

        Args:
            queries: (n, d) unit-norm rows.
            k: how many rows to return at most.
            threshold: rows scoring less are left out; None leaves out none.
            num_threads: threads to use, over queries or, for few of them, inside one.

        Returns:
            float32 scores and int64 ids, both (n, k).
        """
        check_number("k", k, integer=True, minimum=1)
        queries = unit_rows("queries", queries, self.shape[1])
        with faiss_threads(num_threads):
            values, ids = self._index.search(queries, k)
        scores = self._scores(values)
        left_out = ids < 0
        if threshold is not None:
            left_out |= scores < np.float32(check_number("threshold", threshold))
        scores = np.where(left_out, np.float32(-np.inf), scores)
        ids = np.where(left_out, -1, ids)
        order = np.lexsort((ids, -scores))
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)

    def _scores(self, values: np.ndarray) -> np.ndarray:
        """Scores from faiss' results, which already are inner products here."""
        return values


class LSHSearch(FaissSearch):
    """Exhaustive search over bits: the signs of random projections.

    Two unit vectors at angle a differ in a share a/pi of the signs. The score is the estimate
    cos(pi * h / bits) of their cosine, from the Hamming distance h. Projections are the rows of a
    random rotation (orthogonal ones, as long as bits <= d). The paper's bits: 256 to 3072.

    Args:
        dense: (rows, d) unit-norm embeddings.
        bits: number of projections, a multiple of 8.
        num_threads: threads of building.
    """

    def __init__(self, dense: np.ndarray, bits: int, num_threads: int = 1):
        faiss = _faiss(type(self))
        dense = unit_rows("dense", dense)
        check_number("bits", bits, integer=True, minimum=8)
        if bits % 8:
            raise ValueError(f"bits={bits}: expected a multiple of 8 (whole bytes)")
        with faiss_threads(num_threads):
            super().__init__(faiss.IndexLSH(dense.shape[1], bits))  # its seed is fixed
            for start in range(0, len(dense), _LSH_BATCH):
                self._index.add(dense[start : start + _LSH_BATCH])

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search."""
        return {"bits": self._index.nbits}

    def _scores(self, values: np.ndarray) -> np.ndarray:
        return np.cos(np.float32(np.pi / self._index.nbits) * values)


class IVFPQSearch(FaissSearch):
    """Inverted lists of product-quantized residuals; scores are approximate inner products.

    A row is kept in the list of its nearest of `nlist` centroids, as `m` codes of `bits` bits, one
    per slice of d / m dimensions of its difference to the centroid. A query looks into the `nprobe`
    lists whose centroids are nearest. The paper's settings are the defaults, with nprobe from 50 to
    1000. A database too small to train them gets fewer lists and bits, with a warning.

    Args:
        dense: (rows, d) unit-norm embeddings.
        nlist: number of lists.
        m: codes per row; must divide d.
        bits: bits per code, at most 8.
        nprobe: lists that a query looks into; can be changed later.
        train_rows: how many rows, drawn at random, train centroids and codes; None for
            `ROWS_PER_CENTROID` per list and at least as many per code word, if there are enough
            rows.
        seed: of that draw.
        num_threads: threads of building.
    """

    def __init__(
        self,
        dense: np.ndarray,
        nlist: int = 4096,
        m: int = 64,
        bits: int = 8,
        nprobe: int = 100,
        train_rows: int | None = None,
        seed: int = 0,
        num_threads: int = 1,
    ):
        faiss = _faiss(type(self))
        dense = unit_rows("dense", dense)
        rows, dims = dense.shape
        if rows < 2:
            raise ValueError("dense has 1 row: expected at least 2 to train centroids with")
        check_number("nlist", nlist, integer=True, minimum=1)
        check_number("bits", bits, integer=True, minimum=1, maximum=8)
        if dims % check_number("m", m, integer=True, minimum=1):
            raise ValueError(f"m={m}: expected a divisor of the {dims} dimensions")
        if train_rows is None:
            train_rows = ROWS_PER_CENTROID * max(nlist, 2**bits)
        train_rows = min(rows, check_number("train_rows", train_rows, integer=True, minimum=2))
        most = max(2, train_rows // ROWS_PER_CENTROID)
        nlist = _smaller("nlist", nlist, most, rows)
        bits = _smaller("bits", bits, most.bit_length() - 1, rows)
        quantizer = faiss.IndexFlatIP(dims)
        super().__init__(
            faiss.IndexIVFPQ(quantizer, dims, nlist, m, bits, faiss.METRIC_INNER_PRODUCT)
        )
        self._quantizer = quantizer  # faiss does not keep it alive
        chosen = np.random.default_rng(seed).choice(rows, train_rows, replace=False)
        with faiss_threads(num_threads):
            self._index.train(dense[np.sort(chosen)])
            self._index.add(dense)
        self.nprobe = nprobe

    @property
    def nprobe(self) -> int:
        """How many of the lists a query looks into; no more than there are, with a warning."""
        lists: int = self._index.nprobe
        return lists

    @nprobe.setter
    def nprobe(self, lists: int) -> None:
        check_number("nprobe", lists, integer=True, minimum=1)
        self._index.nprobe = _smaller("nprobe", lists, self._index.nlist, self._index.ntotal)

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search."""
        index = self._index
        sizes = {"nlist": index.nlist, "m": index.pq.M, "bits": index.pq.nbits}
        return sizes | {"nprobe": index.nprobe}


class HNSWSearch(FaissSearch):
    """A navigable graph over the rows, which are kept whole; scores are inner products.

    Not in the paper's comparison, but widely used today. Uses more memory than the rows.

    Args:
        dense: (rows, d) unit-norm embeddings.
        m: neighbours per row and layer of the graph (twice as many in the lowest).
        ef_construction: how many candidates are kept while a row is added.
        ef_search: how many are kept during a search, if `k` is not more; can be changed later.
        num_threads: threads of building. With more than one, every build gives another graph.
    """

    def __init__(
        self,
        dense: np.ndarray,
        m: int = 32,
        ef_construction: int = 200,
        ef_search: int = 128,
        num_threads: int = 1,
    ):
        faiss = _faiss(type(self))
        dense = unit_rows("dense", dense)
        check_number("m", m, integer=True, minimum=2)
        check_number("ef_construction", ef_construction, integer=True, minimum=1)
        super().__init__(faiss.IndexHNSWFlat(dense.shape[1], m, faiss.METRIC_INNER_PRODUCT))
        self._m = m
        self._index.hnsw.efConstruction = ef_construction
        self.ef_search = ef_search
        with faiss_threads(num_threads):
            self._index.add(dense)

    @property
    def ef_search(self) -> int:
        """How many candidates a search keeps; `k`, if that is more."""
        candidates: int = self._index.hnsw.efSearch
        return candidates

    @ef_search.setter
    def ef_search(self, candidates: int) -> None:
        check_number("ef_search", candidates, integer=True, minimum=1)
        self._index.hnsw.efSearch = candidates

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search."""
        built = {"m": self._m, "ef_construction": self._index.hnsw.efConstruction}
        return built | {"ef_search": self.ef_search}


def _faiss(search: type[FaissSearch]) -> types.ModuleType:
    """Imports faiss, which only `search` needs, or says in one line how to install it."""
    require(search.__name__, "baselines", "faiss")
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # it tells of each instruction set
    import faiss

    return faiss


def _smaller(name: str, wanted: int, most: int, rows: int) -> int:
    """Returns `wanted`, or `most` with a warning if that is less."""
    if wanted > most:
        warnings.warn(
            f"{name}={wanted} is too many for a database of {rows} rows: using {most}", stacklevel=4
        )
    return min(wanted, most)
