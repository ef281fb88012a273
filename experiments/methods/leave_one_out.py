"""Search among embeddings: each row among the others, or queries in a database."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed import retrieval
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.core.records import Record
from sparse_embed.retrieval.metrics import drop_self, has_mate, recall_at_k

_BATCH = 256  # queries between two moves of the progress bar

Search = Callable[[slice], tuple[np.ndarray, np.ndarray]]


def evaluate(
    database: Embeddings,
    queries: Embeddings | None = None,
    dense_database: Embeddings | None = None,
    dense_queries: Embeddings | None = None,
    k: int = 1000,
    threshold: float | None = 0.25,
) -> list[Record]:
    """Returns one record per method: sparse, sparse re-ranked, exhaustive dense.

    Args:
        database: sparse embeddings to search in.
        queries: sparse embeddings of the queries; None searches each row among the others.
        dense_database: dense embeddings of the same rows; None leaves out the methods that need
            them.
        dense_queries: dense embeddings of the same queries.
        k: longest shortlist.
        threshold: lowest sparse score on the shortlist, None for any.

    Returns:
        Records with `method`, `rows`, `queries` (those that can be answered), `dim`,
        `recall_at_1`, `milliseconds_per_query` (one thread), `flops_per_row` (multiply-adds per
        query and row of the database) and, for sparse ones, `suboptimality_ratio`,
        `activation_probability` and `activation_probabilities`, its value for each dimension.
    """
    alone = queries is None
    sparse_queries = database if queries is None else queries
    count, dim = sparse_queries.vectors.shape[0], database.vectors.shape[1]
    rows = database.vectors.shape[0]
    extra = 1 if alone else 0  # each query finds itself first, which is dropped
    answerable = has_mate(sparse_queries.labels, None if alone else database.labels)

    def measure(method: str, search: Search, **metrics: Any) -> Record:
        seconds, best = 0.0, []
        for start in progress_bar(range(0, count, _BATCH), desc=method, unit="batch"):
            started = time.perf_counter()
            scores, ids = search(slice(start, min(start + _BATCH, count)))
            seconds += time.perf_counter() - started
            if alone:
                scores, ids = drop_self(scores, ids, start)
            best.append(ids[:, :1])
        recall = recall_at_k(
            np.concatenate(best)[answerable], sparse_queries.labels[answerable], database.labels
        )
        timing = {"recall_at_1": recall, "milliseconds_per_query": 1000 * seconds / count}
        counts = {"rows": rows, "queries": int(answerable.sum()), "dim": dim}
        return {"method": method, **counts, **timing, **metrics}

    index = retrieval.SparseIndex.build(database.vectors)
    probability = retrieval.activation_probability(database.vectors)
    metrics = {
        **retrieval.sparsity_metrics(database.vectors),
        "flops_per_row": float(np.mean(index.flops(sparse_queries.vectors))) / rows,
        "activation_probabilities": np.round(probability, 6).tolist(),
    }
    found = [
        measure(
            "sparse", lambda some: index.search(sparse_queries.vectors[some], 1 + extra), **metrics
        )
    ]
    if dense_database is not None:
        dense = dense_database.vectors
        probes = dense if dense_queries is None else dense_queries.vectors
        exhaustive = retrieval.DenseSearch(dense)
        two_stage = retrieval.TwoStage(index, retrieval.Reranker(dense))

        def rerank(some: slice) -> tuple[np.ndarray, np.ndarray]:
            return two_stage.search(
                sparse_queries.vectors[some],
                probes[some],
                k=1 + extra,
                shortlist=k + extra,
                threshold=threshold,
            )

        found.append(measure("sparse, re-ranked", rerank, **metrics))
        found.append(
            measure(
                "exhaustive dense",
                lambda some: exhaustive.search(probes[some], 1 + extra),
                flops_per_row=dense.shape[1],
                dim=dense.shape[1],
            )
        )
    return found


def recalls(
    vectors: scipy.sparse.csr_array, labels: np.ndarray, dense: np.ndarray | None = None
) -> dict[str, float]:
    """Returns `recall_at_1` of each row among the others, and `recall_at_1_reranked` with `dense`.

    The second follows the paper's two stages: score >= 0.25, at most 1000 rows, re-ranked.
    """
    index = retrieval.SparseIndex.build(vectors)
    answerable = has_mate(labels)

    def recall(scores: np.ndarray, ids: np.ndarray) -> float:
        _, ids = drop_self(scores, ids)
        return recall_at_k(ids[answerable], labels[answerable], labels)

    metrics = {"recall_at_1": recall(*index.search(vectors, 2))}
    if dense is not None:
        two_stage = retrieval.TwoStage(index, retrieval.Reranker(dense))
        found = two_stage.search(vectors, dense, k=2, shortlist=1001, threshold=0.25)
        metrics["recall_at_1_reranked"] = recall(*found)
    return metrics
