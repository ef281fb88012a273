"""Search by hash buckets: how Sparse Deep Hashing retrieves (Jeong & Song 2018)."""

import numpy as np
import scipy.sparse

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval.index import SparseIndex
from sparse_embed.retrieval.inputs import Matrix


def hash_codes(embeddings: np.ndarray, active_bits: int) -> scipy.sparse.csr_array:
    """The hash code of each row: ones in its `active_bits` largest dimensions, else zeros.

    Largest, not largest in magnitude; among equal values, the lower dimension comes first.

    Args:
        embeddings: (rows, d), as the encoder returns them.
        active_bits: k of Jeong & Song, 1 to d.
    """
    embeddings = np.asarray(embeddings)
    if embeddings.ndim != 2:
        raise ValueError(f"embeddings of shape {embeddings.shape}: expected (rows, d)")
    rows, dims = embeddings.shape
    check_number("active_bits", active_bits, integer=True, minimum=1, maximum=dims)
    if not np.isfinite(embeddings).all():
        raise ValueError("embeddings hold a value that is NaN or infinite")
    best = np.argsort(-embeddings, axis=1, kind="stable")[:, :active_bits]
    return scipy.sparse.csr_array(
        (
            np.ones(best.size, np.float32),
            np.sort(best, axis=1).ravel().astype(np.int32),
            np.arange(rows + 1) * active_bits,
        ),
        shape=(rows, dims),
    )


class SDHSearch:
    """Finds the rows that share a bucket with the query.

    A row is in the bucket of each of its active bits. The candidates for a query are all rows in
    the buckets of its own active bits; its score for each is the number of shared bits. In SDH all
    candidates are then re-ranked by their dense embeddings: `TwoStage(search, reranker)` with
    `shortlist=None`. Buckets are the posting lists of a `SparseIndex`.

    The paper's CIFAR-100 table counts multiply-adds per row of that re-ranking, d times the share
    of the rows that are candidates, which is about k^2 with evenly filled buckets:
    `d * num_candidates(queries).mean() / rows`.

    Args:
        codes: (rows, d) of zeros and ones (see `hash_codes`).
        num_threads: threads of building.
    """

    def __init__(self, codes: Matrix, num_threads: int = 1):
        if codes.ndim != 2 or 0 in codes.shape:
            raise ValueError(
                f"codes of shape {codes.shape}: expected (rows, bits), both at least 1"
            )
        self._index = SparseIndex.build(_binary("codes", codes), num_threads=num_threads)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, bits)."""
        return self._index.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the buckets."""
        return self._index.nbytes

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search."""
        return {"bits": self.shape[1]}

    def search(
        self,
        queries: Matrix,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the `k` rows that share the most bits with each query.

        Args:
            queries: (n, bits) of zeros and ones.
            k: how many results per query.
            threshold: smallest number of shared bits; None and values below 1 mean 1.
            num_threads: threads to use.

        Returns:
            `(scores, ids)`, arrays (n, k), most shared bits first, ties by lower id, unused places
            -inf / -1.
        """
        codes = _binary("queries", queries)
        least = 1.0 if threshold is None else max(1.0, check_number("threshold", threshold))
        return self._index.search(codes, k, least, num_threads)

    def candidates(
        self, queries: Matrix, threshold: float | None = None, num_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds all rows that share a bucket with each query, as `search` does.

        The results have as many columns as the query with the most candidates needs.
        """
        # There are at most as many candidates as entries in the buckets, and as rows.
        room = max(1, min(int(self._index.flops(queries).max(initial=1)), self.shape[0]))
        scores, ids = self.search(queries, room, threshold, num_threads)
        used = max(1, int((ids >= 0).sum(axis=1).max(initial=0)))
        return scores[:, :used], ids[:, :used]

    def num_candidates(self, queries: Matrix, num_threads: int = 1) -> np.ndarray:
        """How many rows share a bucket with each query."""
        codes = scipy.sparse.csr_array(queries)
        counts = [
            (self.candidates(codes[start : start + 64], None, num_threads)[1] >= 0).sum(axis=1)
            for start in range(0, codes.shape[0], 64)
        ]
        return np.concatenate([np.zeros(0, np.int64), *counts])


def _binary(name: str, x: Matrix) -> Matrix:
    """Returns `x` if it holds zeros and ones only, else raises ValueError."""
    values = np.asarray(x.data if scipy.sparse.issparse(x) else x)
    wrong = values[(values != 0) & (values != 1)]
    if wrong.size:
        raise ValueError(f"{name} holds {wrong.flat[0]}: expected zeros and ones (see hash_codes)")
    return x
