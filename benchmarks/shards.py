r"""Searches made-up rows in shards on Ray and in one index: same results, time, and kills.

    python benchmarks/shards.py --index_folder=runs/shards \
        --rows=10000000 --shards=4 --k=10 --kills=20 --output=runs/shards.json

Builds one index and a sharded one of the same rows from batches (ten million rows take about 9 GB
of disk for both; they stay, and are not built again), compares their results on --compared
queries with filters, times a batch of 64 queries in both, then kills processes of shards with
SIGKILL at random moments of a steady load and compares every answer.
"""

import dataclasses

import row_options
import shard_kills
import sharded_search

from sparse_embed.common.extras import require
from sparse_embed.common.options import option
from sparse_embed.experiments.core import records
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.retrieval import ShardedIndex


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    batch_rows: int = row_options.batch_rows()
    dims: int = row_options.dims()
    nnz: int = row_options.nnz()
    rows: int = row_options.rows()
    output: str | None = fields.output()
    ray_address: str | None = fields.ray_address()
    ray_temp_folder: str | None = fields.ray_temp_folder()
    num_threads: int = fields.num_threads()
    k: int = fields.k()
    index_folder: str | None = fields.index_folder()
    shards: int = fields.shards()
    compared: int = option(2048, "Queries whose results are compared.", lower=64)
    kills: int = option(20, "Processes to kill.", lower=0)
    deadline: float = option(
        20.0, "Seconds that a search may take while processes are killed.", lower=0.1
    )


def main(options: Options) -> None:
    """Measures what the options describe."""
    require("benchmarks/shards.py", "distributed", "ray")
    require("benchmarks/shards.py", "baselines", "psutil")
    folder = app.writable_folder("index_folder", options.index_folder)
    output = app.writable_file("output", options.output, ".json") if options.output else None
    sizes = (options.rows, options.dims, options.nnz, options.compared, options.batch_rows)
    found, one = sharded_search.build(folder, *sizes, options.shards, options.num_threads)
    with ShardedIndex.open(
        folder / sharded_search.SHARDS,
        address=options.ray_address,
        temp_folder=options.ray_temp_folder,
    ) as index:
        queries = sharded_search.make_queries(*sizes)
        found += sharded_search.compare(index, one, queries, options.k)
        found += sharded_search.measure(index, one, queries, options.k, options.num_threads)
        if options.kills:
            found += shard_kills.measure(
                index, one, queries, options.k, options.kills, options.deadline
            )
    if output:
        settings = {name: getattr(options, name) for name in ("rows", "dims", "nnz", "shards", "k")}
        records.save_all(output, found, settings=settings)


if __name__ == "__main__":
    app.run(main, Options)
