r"""Writes an index, its ids and a payload into a database: Qdrant, or PostgreSQL with pgvector.

    python -m sparse_embed.experiments.export_index --source=items.index --payload=items.jsonl \
        --to=pgvector --target=postgresql://localhost/shop --collection=items
    python -m sparse_embed.experiments.export_index --source=items.index --to=qdrant \
        --target=http://localhost:6333 --collection=items

Both keep weights of either sign, bit for bit. With --to=qdrant, a --target that is no URL is a
folder for Qdrant Edge, the same engine without a server. A run that was killed goes on where it
ended when it is called again. In the end --check rows are searched for, in the database and in the
index, and the results compared. Needs the extra `export`.
"""

import numpy as np
from absl import flags

from sparse_embed.common.failures import Failure, UsageError
from sparse_embed.experiments.exporting.pgvector import PgVector
from sparse_embed.experiments.exporting.qdrant import open_qdrant
from sparse_embed.experiments.exporting.rows import open_rows
from sparse_embed.experiments.exporting.transfer import Target, compare, transfer
from sparse_embed.flags import app

_SOURCE = flags.DEFINE_string(
    "source",
    None,
    "What to export: an index as SparseIndex.save writes it, sparse embeddings (.npz), or a folder "
    "of part-*.npz.",
)
_PAYLOAD = flags.DEFINE_string(
    "payload",
    None,
    "JSON that is kept beside each row: a .jsonl file, line i for id i unless the lines have a key "
    '"id"; or labels as .npy. Default: the labels in the embedding files, if any.',
)
_TO = flags.DEFINE_enum("to", None, ["qdrant", "pgvector"], "Kind of database.")
_TARGET = flags.DEFINE_string(
    "target",
    None,
    "Where it is: the URL of a Qdrant server or a folder for Qdrant Edge; a DSN of PostgreSQL. "
    "Secrets come from the environment: QDRANT_API_KEY, PGPASSWORD.",
)
_COLLECTION = flags.DEFINE_string("collection", "items", "Name of the collection or table.")
_UPSERT = flags.DEFINE_bool(
    "upsert",
    False,
    "Whether to write into a collection that holds other rows too: rows of the same id are "
    "replaced.",
)
_UPSERT_ROWS = flags.DEFINE_integer("upsert_rows", 1000, "Rows per request.", lower_bound=1)
_CHECK = flags.DEFINE_integer(
    "check",
    10,
    "For how many rows, drawn at random, to compare the ten nearest in the database with those in "
    "the index; not with --upsert, where other rows may be nearer.",
    lower_bound=0,
)


def main() -> None:
    """Reads the flags, exports, compares."""
    source = app.existing_path("source", _SOURCE.value)
    payload = app.existing_path("payload", _PAYLOAD.value) if _PAYLOAD.value else None
    if not _TO.value:
        raise UsageError("--to is not given: expected qdrant or pgvector")
    if not _TARGET.value:
        raise UsageError("--target is not given: expected an URL, a folder or a DSN")
    kinds = {"qdrant": open_qdrant, "pgvector": PgVector}
    target: Target = kinds[_TO.value](_TARGET.value, _COLLECTION.value)
    try:
        rows = open_rows(source, payload)
        written, present = transfer(rows, target, _UPSERT_ROWS.value, _UPSERT.value)
        print(
            f"{_COLLECTION.value}: {written:,} rows written, {present:,} were there already, "
            f"{target.count():,} in all"
        )
        if _CHECK.value and not _UPSERT.value and len(rows.index):
            ids = np.random.default_rng(0).permutation(rows.index.ids)[: _CHECK.value]
            found = compare(rows.index, target, rows.index.reconstruct(ids), k=10)
            print(
                f"nearest ten of {found.queries} rows: the same as in the index, {found.same} in "
                f"the same order; scores differ by {found.largest_difference:.1e} at most"
            )
    except target.errors as error:
        raise Failure(f"--to={_TO.value}: the database refuses: {error}") from error
    finally:
        target.close()


if __name__ == "__main__":
    app.run(main)
