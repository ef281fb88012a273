r"""Builds a sharded index from sparse embeddings in many files, as `embed` writes them.

    python -m sparse_embed.experiments.build_shards --parts=runs/parts --index_folder=runs/shards \
        --shards=4

One file and the shard that is built are in memory at a time. Row i of all files together gets the
id i, in the order of the files' names; in a folder that `embed_parts` wrote, the number of its
example. `ShardedIndex.open` searches the folder.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import remove_abandoned
from sparse_embed.experiments.evaluation import part_files
from sparse_embed.flags import app
from sparse_embed.flags.shards import INDEX_FOLDER, SHARDS
from sparse_embed.flags.workload import NUM_THREADS
from sparse_embed.retrieval import shard_folder

_PARTS = flags.DEFINE_string(
    "parts",
    None,
    "Sparse embeddings: a folder of part-*.npz files, or a pattern such as 'a/*.npz'.",
)


def main() -> None:
    """Builds what the flags describe."""
    paths = part_files.part_files("parts", _PARTS.value)
    folder = app.writable_folder("index_folder", INDEX_FOLDER.value)
    if (folder / shard_folder.MANIFEST).exists():
        remove_abandoned(folder)  # of the call that made it, if it was killed in the very end
        raise UsageError(f"--index_folder={folder}: expected a folder without a sharded index")
    made = shard_folder.create(
        folder,
        part_files.read_rows("parts", paths),
        SHARDS.value,
        num_threads=NUM_THREADS.value,
        progress=True,
        rows=part_files.count_rows(paths),
    )
    for shard in made.shards:
        print(f"{shard.name}: {len(shard):,} rows, {shard.bytes:,} bytes")


if __name__ == "__main__":
    app.run(main)
