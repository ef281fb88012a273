r"""Makes workloads for `benchmark_search` out of trained embeddings and of text.

    python -m sparse_embed.experiments.make_workloads --workload_dir=runs/workloads \
        --run_dir=runs/reproduce/full
    python -m sparse_embed.experiments.benchmark_search --sweep --output=runs/text.json \
        --database=runs/workloads/text.npz --query_file=runs/workloads/text.queries.npz

Trained embeddings are those of `make reproduce PRESET=full` in `--run_dir`; text is TF-IDF of the
Python sources of this environment, for which scikit-learn must be installed. Each workload is a
file of rows and one of queries, which are not among the rows.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.benchmarks import real_workloads
from sparse_embed.flags import app
from sparse_embed.flags.output import RUN_DIR
from sparse_embed.retrieval import sparsity_metrics

_KNOWN = [*real_workloads.TRAINED, "text"]
_WORKLOAD_DIR = flags.DEFINE_string("workload_dir", None, "Folder that the workloads go to.")
_WORKLOADS = flags.DEFINE_list("workloads", _KNOWN, "Which to make.")
_HELD_OUT = flags.DEFINE_integer("held_out", 1000, "Rows that become queries.", lower_bound=1)
_TEXT_ROWS = flags.DEFINE_integer("text_rows", 100_000, "Passages of text.", lower_bound=1)
_TEXT_DIMS = flags.DEFINE_integer("text_dims", 50_000, "Words of the text.", lower_bound=1)


def main() -> None:
    """Makes the workloads that the flags name."""
    folder = app.writable_folder("workload_dir", _WORKLOAD_DIR.value)
    for name in _WORKLOADS.value:
        if name not in _KNOWN:
            raise UsageError(f"--workloads={name}: expected some of {', '.join(_KNOWN)}")
    for name in _WORKLOADS.value:
        if name == "text":
            made = real_workloads.text(_TEXT_ROWS.value, _TEXT_DIMS.value, _HELD_OUT.value)
        else:
            run_dir = app.existing_path("run_dir", RUN_DIR.value)
            made = real_workloads.trained(run_dir, name, _HELD_OUT.value)
        real_workloads.save(folder, name, made)
        rows, dims = made.database.shape
        ratio = sparsity_metrics(made.database)["suboptimality_ratio"]
        print(
            f"{folder / name}.npz: {rows} rows, {dims} dimensions, "
            f"{made.database.nnz / rows:.1f} non-zeros per row, sub-optimality {ratio:.2f}"
        )


if __name__ == "__main__":
    app.run(main)
