r"""Searches embedded queries in an embedded database; prints recall and speed.

    python -m sparse_embed.experiments.search --database=runs/sparse/test.npz \
        --dense_database=runs/dense/test.npy --output=runs/search.json

Three searches for the best row of each query, the last two with --dense_database alone: `sparse`,
the highest sparse score; `sparse, re-ranked`, the paper's Algorithm 1, which re-ranks a shortlist
of rows scoring at least --threshold, at most --k of them, with the dense embeddings; `exhaustive
dense`, the highest dense score.
Without --queries each row of the database is searched among all the others. Queries of a class that
has no other row cannot be answered: they are searched, but do not count towards recall.
"""

import pathlib

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import Embeddings, load_flag
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.methods import leave_one_out
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.retrieval import DATABASE, THRESHOLD, K

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


def table(found: list[Record]) -> str:
    """Returns the records as a text table."""
    head = ["method", "d", "recall@1", "mult-adds/row", "sub-optimality", "ms/query"]
    rows = [
        [
            record["method"],
            record["dim"],
            f"{record['recall_at_1']:.4f}",
            f"{record['flops_per_row']:.2f}",
            f"{record['suboptimality_ratio']:.2f}" if "suboptimality_ratio" in record else "-",
            f"{record['milliseconds_per_query']:.3f}",
        ]
        for record in found
    ]
    return text_table(head, rows)


def load(flag: str, value: str | None, sparse: bool, rows: int | None = None) -> Embeddings:
    """Reads the embeddings that a flag names; UsageError if they are of another kind or size."""
    path = app.existing_path(flag, value)
    found = load_flag(flag, path, sparse)
    if rows is not None and found.vectors.shape[0] != rows:
        raise UsageError(
            f"--{flag}={value}: expected {rows} rows, as in the sparse file, "
            f"not {found.vectors.shape[0]}"
        )
    return found


def main() -> None:
    """Reads the flags, searches, prints the table."""
    if not _DENSE_DATABASE.value:
        for name in ("k", "threshold"):
            if flags.FLAGS[name].present:
                raise UsageError(
                    f"--{name}={flags.FLAGS[name].value} limits the shortlist that is re-ranked: "
                    "it needs --dense_database"
                )
    output: pathlib.Path | None = None
    if OUTPUT.value:
        output = app.writable_file("output", OUTPUT.value, ".json")
    database = load("database", DATABASE.value, sparse=True)
    queries = dense = dense_queries = None
    if _QUERIES.value:
        queries = load("queries", _QUERIES.value, sparse=True)
        if queries.vectors.shape[1] != database.vectors.shape[1]:
            raise UsageError(
                f"--queries={_QUERIES.value}: {queries.vectors.shape[1]} dimensions: expected "
                f"{database.vectors.shape[1]}, as in --database"
            )
    if _DENSE_DATABASE.value:
        dense = load("dense_database", _DENSE_DATABASE.value, False, database.vectors.shape[0])
        if queries is not None:
            rows = queries.vectors.shape[0]
            dense_queries = load("dense_queries", _DENSE_QUERIES.value, False, rows)
    found = leave_one_out.evaluate(
        database, queries, dense, dense_queries, K.value, THRESHOLD.value
    )
    print(table(found))
    if dense is not None:
        limit = "" if THRESHOLD.value is None else f" scoring at least {THRESHOLD.value:g}"
        print(f"re-ranked: at most {K.value} rows{limit}")
    if output:
        settings = {"k": K.value, "threshold": THRESHOLD.value}
        records.save_all(output, found, settings=settings)


if __name__ == "__main__":
    app.run(main)
