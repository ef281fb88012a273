r"""Makes a sparse index of the dense embeddings that you have, with labels or without.

    python -m sparse_embed.experiments.sparsify --embeddings=mine.npy --flops=2 --output=mine_index
    python -m sparse_embed.experiments.sparsify --embeddings=mine.npy --labels=labels.npy \
        --code_dim=4096 --code_nonzeros=90 --output=mine_index

Learns sparse codes (see `sparse_embed.sparsify`), indexes all rows, and prints how many of the
dense neighbours of held-out rows a search finds, at which cost, beside exhaustive dense search,
HNSW and IVF-PQ. The folder then holds `codes.index` for `SparseIndex.load`, `sparsifier.keras` for
`Sparsifier.load`, `trade_off.png` and `record.json`. Rows are read from the file as they are
needed; those that are learned from, and the index, are in memory. To compare takes the extra
`baselines`.
"""

from sparse_embed.common.extras import require
from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import scratch_folder, user_path
from sparse_embed.experiments.evaluation import index_folder
from sparse_embed.flags import app
from sparse_embed.flags.options.sparsify import Options


def main(options: Options) -> None:
    """Learns codes, indexes, and compares."""
    if options.compared_rows == 1:
        raise UsageError("--compared_rows=1: expected 0, or 2 rows or more")
    dense = index_folder.read_dense(app.existing_path("embeddings", options.embeddings))
    labels = None
    if options.labels:
        labels = index_folder.read_labels(app.existing_path("labels", options.labels), len(dense))
    if not options.output:
        raise UsageError("--output is not given: expected a folder to make")
    if options.compared_rows:
        require("sparsify with --compared_rows other than 0", "baselines", "faiss")
    output = user_path("output", options.output, "a folder to make")
    if output.exists():
        with scratch_folder(output):  # which the call that made it left, if killed in the very end
            raise UsageError(
                f"--output={options.output}: expected a folder that does not exist yet"
            )
    app.writable_folder("output", str(output.parent))
    index_folder.make(
        dense,
        labels,
        output,
        options.num_threads,
        options.compared_rows,
        dim=options.code_dim,
        flops=options.flops,
        nonzeros=options.code_nonzeros,
        steps=options.learning_steps,
    )
    print(f"{output}: {', '.join(sorted(path.name for path in output.iterdir()))}")


if __name__ == "__main__":
    app.run(main, Options)
