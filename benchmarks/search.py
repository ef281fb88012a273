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

import numpy as np
import scipy.sparse
import search_figures
import search_speed
from absl import flags
from row_flags import DIMS, NNZ, ROWS
from workload import Workload, make_workload

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import read_csr
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.retrieval import DATABASE, NUM_THREADS, THRESHOLD, K
from sparse_embed.retrieval import BASELINES, sparsity_metrics

_NUM_QUERIES = flags.DEFINE_integer("num_queries", 200, "How many queries to time.", lower_bound=1)
_SIGNED = flags.DEFINE_bool("signed", False, "Whether values have random signs.")
_QUERY_FILE = flags.DEFINE_string("query_file", None, "Queries that go with --database.")
_METHODS = flags.DEFINE_list("methods", [], "Which methods to time; empty for all.")
_DENSE_DIMS = flags.DEFINE_integer("dense_dims", 512, "Width of dense embeddings.", lower_bound=8)
_MIN_RECALL = flags.DEFINE_float(
    "min_recall", 0.99, "Recall that approximate methods must reach.", lower_bound=0, upper_bound=1
)
_SEED = flags.DEFINE_integer("workload_seed", 0, "Seed of the workload.")
_GROWTH = flags.DEFINE_bool("growth", False, "Whether to time other sizes and densities too.")
_SWEEP = flags.DEFINE_bool("sweep", False, "Whether to time other k, with --threshold and without.")


def load_csr(flag: str, value: str | None) -> scipy.sparse.csr_array:
    """Reads the CSR matrix that a flag names."""
    return read_csr(app.existing_path(flag, value))[0].astype(np.float32)


def chosen_methods() -> list[str]:
    """Returns the methods in --methods, SparseIndex first; `baselines` are those on dense rows."""
    known = list(search_speed.all_methods())
    names = [*_METHODS.value] or known
    if "baselines" in names:
        names += [name for name in BASELINES if name != "dense"]
        names.remove("baselines")
    for name in names:
        if name not in known:
            raise UsageError(f"--methods={name}: expected some of {', '.join(known)}, baselines")
    return sorted({"SparseIndex", *names}, key=known.index)


def read_workload() -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Returns the database and the queries that the flags name."""
    if not DATABASE.value:
        sizes = (ROWS.value, DIMS.value, NNZ.value, _NUM_QUERIES.value)
        return make_workload(*sizes, _SIGNED.value, _SEED.value)
    database = load_csr("database", DATABASE.value)
    queries = load_csr("query_file", _QUERY_FILE.value)[: _NUM_QUERIES.value]
    if database.shape[1] != queries.shape[1]:
        raise UsageError(
            f"--query_file={_QUERY_FILE.value}: {queries.shape[1]} columns: expected "
            f"{database.shape[1]}, as in --database"
        )
    return database, queries


def main() -> None:
    """Runs the benchmark that the flags describe."""
    output = app.writable_file("output", OUTPUT.value, ".json") if OUTPUT.value else None
    for flag in (_GROWTH, _SWEEP):
        if flag.value and output is None:
            raise UsageError(f"--{flag.name}: expected --output=FILE.json, to draw beside it")
    if _DENSE_DIMS.value % 8:
        raise UsageError(f"--dense_dims={_DENSE_DIMS.value}: expected a multiple of 8")
    names = chosen_methods()
    database, queries = read_workload()
    workload = {
        "rows": database.shape[0],
        "dims": database.shape[1],
        "nnz": database.nnz / max(1, database.shape[0]),
        **sparsity_metrics(database),
        "k": K.value,
        "threshold": THRESHOLD.value,
        "queries": queries.shape[0],
        "signed": bool((database.data < 0).any()),
    }
    print(", ".join(f"{key}={value}" for key, value in workload.items()))
    work = Workload(
        database, queries, K.value, THRESHOLD.value, NUM_THREADS.value, _DENSE_DIMS.value
    )
    built: search_speed.Built = {}
    methods, right = search_speed.build_all(work, names, _MIN_RECALL.value, built)
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
    if _SWEEP.value:
        swept = search_speed.sweep(work, names, _MIN_RECALL.value, built)
    if _GROWTH.value:
        built.clear()  # frees their memory
        sparse = [name for name in names if search_speed.all_methods()[name].over == "sparse"]
        if "Algorithm1" not in sparse:
            sparse.append("Algorithm1")
        grown = search_speed.growth(
            work, sparse, _MIN_RECALL.value, NNZ.value, _SIGNED.value, _SEED.value
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
        alike = [record for record in grown if record["nnz"] == NNZ.value]
        search_figures.draw_against(alike, "rows", output.with_name(f"{output.stem}_rows.png"))


if __name__ == "__main__":
    app.run(main)
