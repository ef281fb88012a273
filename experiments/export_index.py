r"""Writes an index, its ids and a payload into a database, or rows into a sharded index.

    python -m sparse_embed.experiments.export_index --source=items.index --payload=items.jsonl \
        --to=pgvector --target=postgresql://localhost/shop --collection=items
    python -m sparse_embed.experiments.export_index --source=items.index --to=qdrant \
        --target=http://localhost:6333 --collection=items
    python -m sparse_embed.experiments.export_index --source=runs/parts --to=shards \
        --index_folder=runs/shards --shards=4

Qdrant, and PostgreSQL with pgvector, keep weights of either sign, bit for bit. With --to=qdrant, a
--target that is no URL is a folder for Qdrant Edge, the same engine without a server. A run that
was killed goes on where it ended when it is called again. In the end --check rows are searched for,
in the database and in the index, and the results compared. Needs the extra `export`.

--to=shards builds an index in shards from sparse embeddings in many files, as `embed` writes them.
One file and the shard that is built are in memory at a time. Row i of all files together gets the
id i, in the order of the files' names; in a folder that `embed_parts` wrote, the number of its
example. `ShardedIndex.open` searches the folder.
"""

import numpy as np

from sparse_embed.common.failures import Failure, UsageError
from sparse_embed.common.files import remove_abandoned
from sparse_embed.experiments.core import part_files
from sparse_embed.experiments.exporting.pgvector import PgVector
from sparse_embed.experiments.exporting.qdrant import open_qdrant
from sparse_embed.experiments.exporting.rows import open_rows
from sparse_embed.experiments.exporting.transfer import Target, compare, transfer
from sparse_embed.flags import app
from sparse_embed.flags.options.export import OPTIONS, Database, Shards
from sparse_embed.retrieval import shard_folder


def main(options: Database | Shards) -> None:
    """Exports the rows."""
    if isinstance(options, Database):
        _export(options)
    else:
        _build_shards(options)


def _export(options: Database) -> None:
    source = app.existing_path("source", options.source)
    payload = app.existing_path("payload", options.payload) if options.payload else None
    if options.to is None:
        raise UsageError("--to is not given: expected qdrant, pgvector or shards")
    if not options.target:
        raise UsageError("--target is not given: expected an URL, a folder or a DSN")
    kinds = {"qdrant": open_qdrant, "pgvector": PgVector}
    target: Target = kinds[options.to](options.target, options.collection)
    try:
        rows = open_rows(source, payload)
        written, present = transfer(rows, target, options.upsert_rows, options.upsert)
        print(
            f"{options.collection}: {written:,} rows written, {present:,} were there already, "
            f"{target.count():,} in all"
        )
        if options.check and not options.upsert and len(rows.index):
            ids = np.random.default_rng(0).permutation(rows.index.ids)[: options.check]
            compared = compare(rows.index, target, rows.index.reconstruct(ids), k=10)
            print(
                f"nearest ten of {compared.queries} rows: the same as in the index, "
                f"{compared.same} in the same order; scores differ by "
                f"{compared.largest_difference:.1e} at most"
            )
    except target.errors as error:
        raise Failure(f"--to={options.to}: the database refuses: {error}") from error
    finally:
        target.close()


def _build_shards(options: Shards) -> None:
    paths = part_files.part_files("source", options.source)
    folder = app.writable_folder("index_folder", options.index_folder)
    if (folder / shard_folder.MANIFEST).exists():
        remove_abandoned(folder)  # of the call that made it, if it was killed in the very end
        raise UsageError(f"--index_folder={folder}: expected a folder without a sharded index")
    made = shard_folder.create(
        folder,
        part_files.read_rows("source", paths),
        options.shards,
        num_threads=options.num_threads,
        progress=True,
        rows=part_files.count_rows(paths),
    )
    for shard in made.shards:
        print(f"{shard.name}: {len(shard):,} rows, {shard.bytes:,} bytes")


if __name__ == "__main__":
    app.run(main, OPTIONS)
