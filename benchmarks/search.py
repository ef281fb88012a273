r"""Times exact sparse search beside other methods that answer the same queries.

    python benchmarks/search.py --output=runs/search_speed.json
    python benchmarks/search.py --k=10 --methods=Algorithm1,SINDI
    python benchmarks/search.py --growth --output=runs/search_speed.json

The workload is made up (see `benchmarks.workload`), or read from `--database` and `--query_file`,
CSR matrices in SciPy's `.npz`. Methods are built one after the other and then timed in turns, query
by query, so that other load on the machine affects all of them alike. Exact methods must agree, or
the script fails. For an approximate method, the fastest settings that reach `--min_recall` are
shown. sparse_dot_topn, Seismic (pyseismic-lsr) and SINDI (pyvsag) take part where they are
installed. `--sweep` also times k = 1, 10, 100 and 1000, with `--threshold` and without, `--growth`
other numbers of rows and of non-zeros; both draw the times of all methods beside the output.
"""

import dataclasses

import numpy as np
import row_options
import scipy.sparse
import search_figures
import search_speed
from workload import Workload, make_workload

from sparse_embed.common.failures import UsageError
from sparse_embed.common.options import option
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import read_csr
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.retrieval import BASELINES, sparsity_metrics


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    dims: int = row_options.dims()
    nnz: int = row_options.nnz()
    rows: int = row_options.rows()
    output: str | None = fields.output()
    database: str | None = fields.database()
    num_threads: int = fields.num_threads()
    threshold: float | None = fields.threshold()
    k: int = fields.k()
    num_queries: int = option(200, "How many queries to time.", lower=1)
    signed: bool = option(False, "Whether values have random signs.")
    query_file: str | None = option(None, "Queries that go with --database.")
    methods: tuple[str, ...] = option((), "Which methods to time; empty for all.")
    dense_dims: int = option(512, "Width of dense embeddings.", lower=8)
    min_recall: float = option(
        0.99, "Recall that approximate methods must reach.", lower=0, upper=1
    )
    workload_seed: int = option(0, "Seed of the workload.")
    growth: bool = option(False, "Whether to time other sizes and densities too.")
    sweep: bool = option(False, "Whether to time other k, with --threshold and without.")


def load_csr(flag: str, value: str | None) -> scipy.sparse.csr_array:
    """Reads the CSR matrix that a flag names."""
    return read_csr(app.existing_path(flag, value))[0].astype(np.float32)


def chosen_methods(options: Options) -> list[str]:
    """Returns the methods in --methods, SparseIndex first; `baselines` are those on dense rows."""
    known = list(search_speed.all_methods())
    names = [*options.methods] or known
    if "baselines" in names:
        names += [name for name in BASELINES if name != "dense"]
        names.remove("baselines")
    for name in names:
        if name not in known:
            raise UsageError(f"--methods={name}: expected some of {', '.join(known)}, baselines")
    return sorted({"SparseIndex", *names}, key=known.index)


def read_workload(options: Options) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Returns the database and the queries that the options name."""
    if not options.database:
        sizes = (options.rows, options.dims, options.nnz, options.num_queries)
        return make_workload(*sizes, options.signed, options.workload_seed)
    database = load_csr("database", options.database)
    queries = load_csr("query_file", options.query_file)[: options.num_queries]
    if database.shape[1] != queries.shape[1]:
        raise UsageError(
            f"--query_file={options.query_file}: {queries.shape[1]} columns: expected "
            f"{database.shape[1]}, as in --database"
        )
    return database, queries


def main(options: Options) -> None:
    """Runs the benchmark that the options describe."""
    output = app.writable_file("output", options.output, ".json") if options.output else None
    for name in ("growth", "sweep"):
        if getattr(options, name) and output is None:
            raise UsageError(f"--{name}: expected --output=FILE.json, to draw beside it")
    if options.dense_dims % 8:
        raise UsageError(f"--dense_dims={options.dense_dims}: expected a multiple of 8")
    names = chosen_methods(options)
    database, queries = read_workload(options)
    workload = {
        "rows": database.shape[0],
        "dims": database.shape[1],
        "nnz": database.nnz / max(1, database.shape[0]),
        **sparsity_metrics(database),
        "k": options.k,
        "threshold": options.threshold,
        "queries": queries.shape[0],
        "signed": bool((database.data < 0).any()),
    }
    print(", ".join(f"{key}={value}" for key, value in workload.items()))
    work = Workload(
        database, queries, options.k, options.threshold, options.num_threads, options.dense_dims
    )
    built: search_speed.Built = {}
    methods, right = search_speed.build_all(work, names, options.min_recall, built)
    found = search_speed.measure(methods, right, queries.shape[0])
    print(search_speed.table(found))
    (own,) = [record for record in found if record["method"] == "SparseIndex"]
    speed = search_speed.bandwidth(work, workload["flops_per_row"], own["milliseconds_per_query"])
    print(
        f"posting lists of a query: {speed['posting_bytes_per_query'] / 1e6:.2f} MB, at the time "
        f"above {speed['posting_bytes_per_second'] / 1e9:.1f} GB/s (pruning reads less); one "
        f"thread of this machine reads {speed['measured_bytes_per_second'] / 1e9:.1f} GB/s"
    )
    swept, grown = [], []
    if options.sweep:
        swept = search_speed.sweep(work, names, options.min_recall, built)
    if options.growth:
        built.clear()  # frees their memory
        sparse = [name for name in names if search_speed.all_methods()[name].over == "sparse"]
        if "Algorithm1" not in sparse:
            sparse.append("Algorithm1")
        grown = search_speed.growth(
            work, sparse, options.min_recall, options.nnz, options.signed, options.workload_seed
        )
    if output:
        records.save_all(
            output, found, workload=workload, bandwidth=speed, sweep=swept, growth=grown
        )
    if output and swept:
        whole = [record for record in swept if record["threshold"] is None]
        search_figures.draw_against(whole, "k", output.with_name(f"{output.stem}_k.png"))
    if output and grown:
        search_figures.draw_growth(grown, output.with_suffix(".png"))
        alike = [record for record in grown if record["nnz"] == options.nnz]
        search_figures.draw_against(alike, "rows", output.with_name(f"{output.stem}_rows.png"))


if __name__ == "__main__":
    app.run(main, Options)
