r"""Searches made-up rows in shards on Ray and in one index: same results, time, and kills.

    python benchmarks/shards.py --index_folder=runs/shards \
        --rows=10000000 --shards=4 --k=10 --kills=20 --output=runs/shards.json

Builds one index and a sharded one of the same rows from batches (ten million rows take about 9 GB
of disk for both; they stay, and are not built again), compares their results on --compared
queries with filters, times a batch of 64 queries in both, then kills processes of shards with
SIGKILL at random moments of a steady load and compares every answer.
"""

import shard_kills
import sharded_search
from absl import flags
from row_flags import BATCH_ROWS, DIMS, NNZ, ROWS

from sparse_embed.common.extras import require
from sparse_embed.experiments.core import records
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.ray import RAY_ADDRESS, RAY_TEMP_FOLDER
from sparse_embed.flags.retrieval import NUM_THREADS, K
from sparse_embed.flags.shards import INDEX_FOLDER, SHARDS
from sparse_embed.retrieval import ShardedIndex

_COMPARED = flags.DEFINE_integer(
    "compared", 2048, "Queries whose results are compared.", lower_bound=64
)
_KILLS = flags.DEFINE_integer("kills", 20, "Processes to kill.", lower_bound=0)
_DEADLINE = flags.DEFINE_float(
    "deadline", 20.0, "Seconds that a search may take while processes are killed.", lower_bound=0.1
)


def main() -> None:
    """Measures what the flags describe."""
    require("benchmarks/shards.py", "distributed", "ray")
    require("benchmarks/shards.py", "baselines", "psutil")
    folder = app.writable_folder("index_folder", INDEX_FOLDER.value)
    output = app.writable_file("output", OUTPUT.value, ".json") if OUTPUT.value else None
    sizes = (ROWS.value, DIMS.value, NNZ.value, _COMPARED.value, BATCH_ROWS.value)
    found, one = sharded_search.build(folder, *sizes, SHARDS.value, NUM_THREADS.value)
    with ShardedIndex.open(
        folder / sharded_search.SHARDS,
        address=RAY_ADDRESS.value,
        temp_folder=RAY_TEMP_FOLDER.value,
    ) as index:
        queries = sharded_search.make_queries(*sizes)
        found += sharded_search.compare(index, one, queries, K.value)
        found += sharded_search.measure(index, one, queries, K.value, NUM_THREADS.value)
        if _KILLS.value:
            found += shard_kills.measure(
                index, one, queries, K.value, _KILLS.value, _DEADLINE.value
            )
    if output:
        settings = {
            name: flags.FLAGS[name].value for name in ("rows", "dims", "nnz", "shards", "k")
        }
        records.save_all(output, found, settings=settings)


if __name__ == "__main__":
    app.run(main)
