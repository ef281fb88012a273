"""Options of `export_index`, by where it goes, and of `export_encoder`."""

import dataclasses

from sparse_embed.common.options import option
from sparse_embed.flags.config import Kinds
from sparse_embed.flags.options import fields


@dataclasses.dataclass(frozen=True)
class Database:
    """Rows, their ids and a payload in a database."""

    to: str | None = option(None, "Kind of database.", choices=("qdrant", "pgvector"))
    source: str | None = option(
        None,
        "What to export: an index as SparseIndex.save writes it, sparse embeddings (.npz), or a "
        "folder of part-*.npz.",
    )
    payload: str | None = option(
        None,
        "JSON that is kept beside each row: a .jsonl file, line i for id i unless the lines have a "
        'key "id"; or labels as .npy. Default: the labels in the embedding files, if any.',
    )
    target: str | None = option(
        None,
        "Where it is: the URL of a Qdrant server or a folder for Qdrant Edge; a DSN of PostgreSQL. "
        "Secrets come from the environment: QDRANT_API_KEY, PGPASSWORD.",
    )
    collection: str = option("items", "Name of the collection or table.")
    upsert: bool = option(
        False,
        "Whether to write into a collection that holds other rows too: rows of the same id are "
        "replaced.",
    )
    upsert_rows: int = option(1000, "Rows per request.", lower=1)
    check: int = option(
        10,
        "For how many rows, drawn at random, to compare the ten nearest in the database with those "
        "in the index; not with --upsert, where other rows may be nearer.",
        lower=0,
    )


@dataclasses.dataclass(frozen=True)
class Shards:
    """A sharded index of sparse embeddings in many files."""

    source: str | None = option(
        None, "Sparse embeddings: a folder of part-*.npz files, or a pattern such as 'a/*.npz'."
    )
    index_folder: str | None = fields.index_folder()
    shards: int = fields.shards()
    num_threads: int = fields.num_threads()


OPTIONS = Kinds(
    "to",
    "Where the rows go: a database, or the folder of a sharded index.",
    {"qdrant": Database, "pgvector": Database, "shards": Shards},
)


@dataclasses.dataclass(frozen=True)
class Encoder:
    """The encoder of a run in other formats."""

    model_dir: str | None = fields.model_dir()
    export: tuple[str, ...] = fields.export()
    data_dir: str | None = fields.data_dir()
    examples: int = option(2000, "How many examples of unseen classes to compare on.", lower=2)
