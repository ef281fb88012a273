r"""Searches embedded queries in an embedded database and tells how well and how fast it went.

    python -m sparse_embed.experiments.search --database=runs/sparse/test.npz \
        --dense_database=runs/dense/test.npy --output=runs/search.json

Stage one is the paper's Algorithm 1 on the sparse embeddings: rows scoring at least --threshold, at
most --k of them. Stage two re-ranks that shortlist with the dense embeddings, where they are given.
Without --queries each row of the database is searched among all the others. Queries of a class that
has no other row cannot be answered: they are searched, but do not count for recall.
"""

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from absl import flags

from sparse_embed import retrieval
from sparse_embed.common.files import atomic_path
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments import embeddings
from sparse_embed.experiments.embeddings import Embeddings
from sparse_embed.experiments.provenance import provenance
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.retrieval import DATABASE, THRESHOLD, K
from sparse_embed.retrieval.metrics import drop_self, has_mate, recall_at_k

_QUERIES = flags.DEFINE_string(
    "queries",
    None,
    "Sparse embeddings of the queries (.npz); default: each row of the database among the others.",
)
_DENSE_DATABASE = flags.DEFINE_string(
    "dense_database", None, "Dense embeddings (.npy) of the same rows, to re-rank with."
)
_DENSE_QUERIES = flags.DEFINE_string(
    "dense_queries", None, "Dense embeddings (.npy) of the same queries; goes with --queries."
)

_BATCH = 256  # queries between two moves of the progress bar

Search = Callable[[slice], tuple[np.ndarray, np.ndarray]]


def evaluate(
    database: Embeddings,
    queries: Embeddings | None = None,
    dense_database: Embeddings | None = None,
    dense_queries: Embeddings | None = None,
    k: int = 1000,
    threshold: float = 0.25,
) -> list[dict[str, Any]]:
    """Returns one record per method: sparse, sparse re-ranked, exhaustive dense.

    Args:
        database: sparse embeddings to search in.
        queries: sparse embeddings of the queries; None searches each row among the others.
        dense_database: dense embeddings of the same rows; None leaves out what needs them.
        dense_queries: dense embeddings of the same queries.
        k: longest shortlist.
        threshold: lowest sparse score that is shortlisted.

    Returns:
        Records with `method`, `rows`, `queries` (those that can be answered), `dim`,
        `recall_at_1`, `flops_per_row` (multiply-adds per query and row of the database),
        `milliseconds_per_query` (one thread) and, for sparse ones, `suboptimality`,
        `activation_probability` and `activation_probabilities`, its value for each dimension.
    """
    alone = queries is None
    sparse_queries = database if queries is None else queries
    count, dim = sparse_queries.vectors.shape[0], database.vectors.shape[1]
    rows = database.vectors.shape[0]
    extra = 1 if alone else 0  # each query finds itself first, and that is dropped
    answerable = has_mate(sparse_queries.labels, None if alone else database.labels)

    def measure(method: str, search: Search, **figures: Any) -> dict[str, Any]:
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
        return {"method": method, **counts, **timing, **figures}

    index = retrieval.SparseIndex.build(database.vectors)
    probability = retrieval.activation_probability(database.vectors)
    figures = {
        "flops_per_row": float(np.mean(index.flops(sparse_queries.vectors))) / rows,
        "suboptimality": retrieval.suboptimality_ratio(database.vectors),
        "activation_probability": float(np.mean(probability)),
        "activation_probabilities": np.round(probability, 6).tolist(),
    }
    records = [
        measure(
            "sparse", lambda some: index.search(sparse_queries.vectors[some], 1 + extra), **figures
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

        records.append(measure("sparse, re-ranked", rerank, **figures))
        records.append(
            measure(
                "exhaustive dense",
                lambda some: exhaustive.search(probes[some], 1 + extra),
                flops_per_row=dense.shape[1],
                dim=dense.shape[1],
            )
        )
    return records


def leave_one_out_recall(
    vectors: scipy.sparse.csr_array, labels: np.ndarray, dense: np.ndarray | None = None
) -> dict[str, float]:
    """Returns `recall_at_1` of each row among the others, and `recall_at_1_reranked` with `dense`.

    The second is that of the paper's two stages: score >= 0.25, at most 1000 rows, re-ranked.
    """
    index = retrieval.SparseIndex.build(vectors)
    answerable = has_mate(labels)

    def recall(scores: np.ndarray, ids: np.ndarray) -> float:
        _, ids = drop_self(scores, ids)
        return recall_at_k(ids[answerable], labels[answerable], labels)

    figures = {"recall_at_1": recall(*index.search(vectors, 2))}
    if dense is not None:
        two_stage = retrieval.TwoStage(index, retrieval.Reranker(dense))
        found = two_stage.search(vectors, dense, k=2, shortlist=1001, threshold=0.25)
        figures["recall_at_1_reranked"] = recall(*found)
    return figures


def table(records: list[dict[str, Any]]) -> str:
    """Returns the records as an aligned text table."""
    head = ("method", "d", "recall@1", "mult-adds/row", "sub-optimality", "ms/query")
    lines = [head]
    for record in records:
        ratio = f"{record['suboptimality']:.2f}" if "suboptimality" in record else "-"
        lines.append(
            (
                record["method"],
                str(record["dim"]),
                f"{record['recall_at_1']:.4f}",
                f"{record['flops_per_row']:.2f}",
                ratio,
                f"{record['milliseconds_per_query']:.3f}",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


def _load(flag: str, value: str | None, sparse: bool, rows: int | None = None) -> Embeddings:
    """Reads the embeddings that a flag names; UsageError where they are not what it expects."""
    path = app.existing_path(flag, value)
    try:
        found = embeddings.load(path)
    except ValueError as error:
        raise app.UsageError(f"--{flag}={value}: {error}") from error
    if found.is_sparse != sparse:
        raise app.UsageError(f"--{flag}={value}: expected {'sparse' if sparse else 'dense'} rows")
    if rows is not None and found.vectors.shape[0] != rows:
        raise app.UsageError(
            f"--{flag}={value}: expected {rows} rows, as in the sparse file, "
            f"not {found.vectors.shape[0]}"
        )
    return found


def main() -> None:
    """Reads the flags, searches, prints the table."""
    output = app.writable_file("output", OUTPUT.value, ".json") if OUTPUT.value else None
    database = _load("database", DATABASE.value, sparse=True)
    queries = dense = dense_queries = None
    if _QUERIES.value:
        queries = _load("queries", _QUERIES.value, sparse=True)
        if queries.vectors.shape[1] != database.vectors.shape[1]:
            raise app.UsageError(
                f"--queries={_QUERIES.value}: {queries.vectors.shape[1]} dimensions: expected "
                f"{database.vectors.shape[1]}, as in --database"
            )
    if _DENSE_DATABASE.value:
        dense = _load("dense_database", _DENSE_DATABASE.value, False, database.vectors.shape[0])
        if queries is not None:
            rows = queries.vectors.shape[0]
            dense_queries = _load("dense_queries", _DENSE_QUERIES.value, False, rows)
    records = evaluate(database, queries, dense, dense_queries, K.value, THRESHOLD.value)
    print(table(records))
    if output:
        save_records(output, records, k=K.value, threshold=THRESHOLD.value)


def save_records(path: pathlib.Path, records: list[dict[str, Any]], **settings: Any) -> None:
    """Writes the records, the settings and where they were measured, as JSON."""
    content = {"settings": settings, "records": records, "provenance": provenance()}
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    app.run(main)
