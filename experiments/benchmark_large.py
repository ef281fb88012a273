r"""Builds a large index from batches, saves it, maps it and searches it: time and peak memory.

    python -m sparse_embed.experiments.benchmark_large --index_file=runs/large.index \
        --rows=10000000 --k=10

Rows are made up batch by batch (see `benchmarks.workload`), so that one batch at a time is in
memory beside the index. Ten million rows of 32 non-zeros take about 4.5 GB of disk.
"""

from absl import flags

from sparse_embed.experiments.benchmarks import large_index
from sparse_embed.experiments.evaluation import records
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.retrieval import K
from sparse_embed.flags.workload import BATCH_ROWS, DIMS, NNZ, NUM_THREADS, ROWS

_INDEX_FILE = flags.DEFINE_string("index_file", None, "File of the index (.index); it stays.")


def main() -> None:
    """Measures what the flags describe."""
    path = app.writable_file("index_file", _INDEX_FILE.value, ".index")
    output = app.writable_file("output", OUTPUT.value, ".json") if OUTPUT.value else None
    sizes = (ROWS.value, DIMS.value, NNZ.value, BATCH_ROWS.value)
    found = large_index.measure(path, *sizes, K.value, NUM_THREADS.value)
    if output:
        records.save_all(output, found)


if __name__ == "__main__":
    app.run(main)
