r"""Measures, fits and applies the cost model of search: see docs/cost_model.md.

    python -m sparse_embed.experiments.cost_model --stage=build --rows=1000000 --nnz=32
    python -m sparse_embed.experiments.cost_model --stage=index --rows=1000000 --nnz=32
    python -m sparse_embed.experiments.cost_model --stage=fit
    python -m sparse_embed.experiments.cost_model --stage=plan

Each stage reads what earlier ones wrote to `--cost_dir` and writes a file of its own there:

    build   an index of made-up rows, in `--shard_dir`; run it for several --rows and --nnz
    index   times and bytes of such an index, which is removed
    spread  the same queries on four shards: how much times differ between shards
    others  merging, exhaustive dense search and IVF-PQ
    fit     the model, from the indexes of 1, 3 and 10 million rows
    predict an index of --rows and --nnz that was not measured yet
    check   all predictions against the indexes that were measured since
    plan    100 million and a billion rows: shards, memory, latency, cores; a figure, and tables,
            which go between the marks of the page --output
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.benchmarks import cost_stages
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.workload import DIMS, NNZ, NUM_THREADS, ROWS

_STAGE = flags.DEFINE_enum("stage", None, list(cost_stages.STAGES), "What to do; see above.")
_COST_DIR = flags.DEFINE_string("cost_dir", "results/cost_model", "Folder of the records.")
_SHARD_DIR = flags.DEFINE_string(
    "shard_dir", "runs/cost_model", "Folder of index files, which are removed once timed."
)
_COST_QUERIES = flags.DEFINE_integer(
    "cost_queries", 300, "Queries of each kind.", lower_bound=10, upper_bound=50_000
)
_TIMING_ROUNDS = flags.DEFINE_integer(
    "timing_rounds", 3, "How often each query is timed.", lower_bound=1
)
_ROUND_TRIP = flags.DEFINE_float(
    "round_trip_ms", 1.2, "Milliseconds to call all shards and back, assumed.", lower_bound=0.0
)
_CALL = flags.DEFINE_float(
    "call_ms", 0.1, "Milliseconds of the caller for each shard, assumed.", lower_bound=0.0
)
_GIGABITS = flags.DEFINE_float(
    "gigabits", 10.0, "Gigabits per second into the caller, assumed.", lower_bound=0.001
)
_REPLICA_CORES = flags.DEFINE_integer(
    "replica_cores", 4, "Cores of each replica of a shard.", lower_bound=1
)


def main() -> None:
    """Runs one stage."""
    if not _STAGE.value:
        raise UsageError(f"--stage is not given: expected one of {', '.join(cost_stages.STAGES)}")
    folder = app.writable_folder("cost_dir", _COST_DIR.value)
    options = cost_stages.Options(
        shard_dir=app.writable_folder("shard_dir", _SHARD_DIR.value),
        rows=ROWS.value,
        dims=DIMS.value,
        nnz=NNZ.value,
        queries=_COST_QUERIES.value,
        rounds=_TIMING_ROUNDS.value,
        num_threads=NUM_THREADS.value,
        round_trip_ms=_ROUND_TRIP.value,
        call_ms=_CALL.value,
        gigabits=_GIGABITS.value,
        replica_cores=_REPLICA_CORES.value,
        page=app.writable_file("output", OUTPUT.value, ".md") if OUTPUT.value else None,
    )
    cost_stages.STAGES[_STAGE.value](folder, options)


if __name__ == "__main__":
    app.run(main)
