r"""Compares ways to sparse codes of dense embeddings, on classes that none of them has seen.

    python -m sparse_embed.experiments.compare_sparsifiers --labelled=lfw_dlib128.npz \
        --held_out_classes=2875 --code_nonzeros=32 --output=runs/lfw.json

Random directions, a linear head, autoencoders and `Sparsifier`, with labels and without, at the
same dimension and number of non-zeros; beside them PCA of the same bytes, IVF-PQ and HNSW on the
dense rows. The table has means and standard deviations over the splits by class.
"""

import numpy as np
from absl import flags

from sparse_embed.common.arrays import read_npz
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.evaluation import records
from sparse_embed.experiments.sparsifying import splits
from sparse_embed.flags import app
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.sparsifying import CODE_DIM, NONZEROS
from sparse_embed.flags.workload import NUM_THREADS

_LABELLED = flags.DEFINE_string(
    "labelled", None, "Dense embeddings with labels: the arrays of these names in an .npz."
)
_HELD_OUT = flags.DEFINE_integer(
    "held_out_classes", None, "Classes to hold out; half of them if None.", lower_bound=1
)
_WAYS = flags.DEFINE_list(
    "ways", [], "Which ways to sparse codes, by their names in the table; empty for all."
)
_SPLITS = flags.DEFINE_list("splits", ["1", "2", "3", "4", "5"], "Seeds of the splits.")


def main() -> None:
    """Compares what the flags describe."""
    output = app.writable_file("output", OUTPUT.value, ".json")
    arrays = read_npz(app.existing_path("labelled", _LABELLED.value), ("embeddings", "labels"))
    rows, labels = arrays["embeddings"], arrays["labels"]
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or rows.dtype.kind not in "fiu":
        raise UsageError(
            f"--labelled={_LABELLED.value}: expected embeddings (n, d) and labels (n,), got "
            f"{rows.shape} of {rows.dtype} and {labels.shape}"
        )
    rows = rows.astype(np.float32)
    if not np.isfinite(rows).all():
        raise UsageError(f"--labelled={_LABELLED.value}: expected finite embeddings")
    classes = len(np.unique(labels))
    held_out = _HELD_OUT.value or classes // 2
    if not 0 < held_out < classes:
        raise UsageError(
            f"--held_out_classes={held_out}: expected 1 to {classes - 1} of the {classes} classes"
        )
    if not all(seed.isdigit() for seed in _SPLITS.value):
        raise UsageError(f"--splits={','.join(_SPLITS.value)}: expected integers, such as 1,2,3")
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    unknown = set(_WAYS.value) - set(splits.ways(1, 1, 0))
    if unknown:
        known = "; ".join(splits.ways(1, 1, 0))
        raise UsageError(f"--ways={','.join(_WAYS.value)}: expected some of {known}")
    sizes = (CODE_DIM.value, NONZEROS.value or 32)
    if sizes[1] > sizes[0]:
        raise UsageError(f"--code_nonzeros={sizes[1]}: expected at most --code_dim={sizes[0]}")
    found = splits.measure(
        rows,
        labels,
        held_out,
        [int(seed) for seed in _SPLITS.value],
        *sizes,
        NUM_THREADS.value,
        [*_WAYS.value],
    )
    print(splits.summary(found))
    records.save_all(output, found, dim=sizes[0], nonzeros=sizes[1], held_out=held_out)


if __name__ == "__main__":
    app.run(main)
