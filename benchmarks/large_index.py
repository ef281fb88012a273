r"""Builds a large index from batches, saves it, maps it and searches it: time and peak memory.

    python benchmarks/large_index.py --index_file=runs/large.index \
        --rows=10000000 --k=10

Rows are made up batch by batch (see `benchmarks.workload`), so that one batch at a time is in
memory beside the index. Ten million rows of 32 non-zeros take about 4.5 GB of disk.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator

import numpy as np
import row_options
import scipy.sparse
from workload import batches

from sparse_embed.common.memory import peak_bytes
from sparse_embed.common.options import option
from sparse_embed.common.timing import timed
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.records import Record
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.retrieval import SparseIndex

_QUERIES = 100


def measure(
    path: pathlib.Path, rows: int, dims: int, nnz: int, batch_rows: int, k: int, num_threads: int
) -> list[Record]:
    """Returns what each stage took: `stage`, `seconds`, `peak_bytes` of the process so far.

    Building includes making the rows up. The mapped index is searched twice, query by query on one
    thread: the first time pages come from the file.

    Args:
        path: the index file, which stays.
        rows: of the index.
        dims: see `workload.batches`.
        nnz: see `workload.batches`.
        batch_rows: rows per batch.
        k: results per query.
        num_threads: threads that build.
    """
    records: list[Record] = []

    def note(stage: str, seconds: float) -> None:
        records.append({"stage": stage, "seconds": seconds, "peak_bytes": peak_bytes()})
        print(f"{stage}: {seconds:.4g} s, peak {peak_bytes() / 2**30:.2f} GiB", flush=True)

    drawn: list[scipy.sparse.csr_array] = []

    def made() -> Iterator[scipy.sparse.csr_array]:
        for database, near in batches(rows, dims, nnz, _QUERIES, batch_rows):
            drawn.append(near)
            yield database

    index, seconds = timed(
        lambda: SparseIndex.build(made(), num_threads=num_threads, progress=True)
    )
    note("build", seconds)
    note("save", timed(functools.partial(index.save, path))[1])
    del index
    mapped, seconds = timed(lambda: SparseIndex.load(path))
    note("load", seconds)
    queries = scipy.sparse.vstack(drawn, format="csr")
    for stage in ("first search", "search"):
        taken = [
            timed(functools.partial(mapped.search, queries[q : q + 1], k))[1]
            for q in range(_QUERIES)
        ]
        note(f"{stage}, per query", float(np.median(taken)))
    return records


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    batch_rows: int = row_options.batch_rows()
    dims: int = row_options.dims()
    nnz: int = row_options.nnz()
    rows: int = row_options.rows()
    output: str | None = fields.output()
    num_threads: int = fields.num_threads()
    k: int = fields.k()
    index_file: str | None = option(None, "File of the index (.index); it stays.")


def main(options: Options) -> None:
    """Measures what the options describe."""
    path = app.writable_file("index_file", options.index_file, ".index")
    output = app.writable_file("output", options.output, ".json") if options.output else None
    sizes = (options.rows, options.dims, options.nnz, options.batch_rows)
    found = measure(path, *sizes, options.k, options.num_threads)
    if output:
        records.save_all(output, found)


if __name__ == "__main__":
    app.run(main, Options)
