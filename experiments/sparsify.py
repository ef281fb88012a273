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

from absl import flags

from sparse_embed.common.extras import require
from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import scratch_folder, user_path
from sparse_embed.experiments.sparsifying import index_folder
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.sparsifying import CODE_DIM, FLOPS, NONZEROS, STEPS
from sparse_embed.flags.workload import NUM_THREADS

_EMBEDDINGS = flags.DEFINE_string("embeddings", None, "Dense embeddings (.npy), a row for each.")
_LABELS = flags.DEFINE_string("labels", None, "Labels of the rows (.npy), integers or strings.")
_COMPARED = flags.DEFINE_integer(
    "compared_rows",
    index_folder.COMPARED,
    "Rows, drawn at random, on which other methods are compared; 0 for none.",
)
flags.register_validator(
    _COMPARED, lambda rows: rows == 0 or rows >= 2, "expected 0, or 2 rows or more"
)


def main() -> None:
    """Reads the flags and sparsifies."""
    dense = index_folder.read_dense(app.existing_path("embeddings", _EMBEDDINGS.value))
    labels = None
    if _LABELS.value:
        labels = index_folder.read_labels(app.existing_path("labels", _LABELS.value), len(dense))
    if not OUTPUT.value:
        raise UsageError("--output is not given: expected a folder to make")
    if _COMPARED.value:
        require("sparsify with --compared_rows other than 0", "baselines", "faiss")
    output = user_path("output", OUTPUT.value, "a folder to make")
    if output.exists():
        with scratch_folder(output):  # which the call that made it left, if killed in the very end
            raise UsageError(f"--output={OUTPUT.value}: expected a folder that does not exist yet")
    app.writable_folder("output", str(output.parent))
    index_folder.make(
        dense,
        labels,
        output,
        NUM_THREADS.value,
        _COMPARED.value,
        dim=CODE_DIM.value,
        flops=FLOPS.value,
        nonzeros=NONZEROS.value,
        steps=STEPS.value,
    )
    print(f"{output}: {', '.join(sorted(path.name for path in output.iterdir()))}")


if __name__ == "__main__":
    app.run(main)
