r"""Identification among distractors: recall and time per query of every method, a record each.

    python -m sparse_embed.experiments.evaluate_megaface --dense=runs/dense512/identification.npy \
        --sparse=runs/flops_30/identification.npz,runs/l1_0.6/identification.npz

Each file holds the same images in the same order: first the probes, which are the mates of each
other, labelled with their identities, then the distractors, labelled -1. Recall is that of
MegaFace, and of the authors' variant of it (see `retrieval.megaface`). All methods re-rank with
--dense, as in the paper; PCA, LSH, IVF-PQ and HNSW compress it. The shortlist of sparse embeddings
holds the rows that score at least --threshold, at most --k; those of the others hold the best --k.

With --keep=64,32:8 sparse embeddings are also searched cut: rows and queries to their 64 largest
values, and rows to 32 with queries of 8. One encoder thus gives a curve.

Recall is over all probes. Times are the median over some of them, one at a time on one thread, all
methods in turns (see `methods.timing`); nothing else should run. Records whose inputs and
settings are unchanged are kept.
A table of all of them is printed at the end: F is multiply-adds per row, R the sub-optimality
ratio.
"""

import os
import pathlib

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.evaluation import identification
from sparse_embed.experiments.methods import registry
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DATA_NAME, DISTRACTORS, ONLY, TIMED_QUERIES
from sparse_embed.flags.output import RECORDS
from sparse_embed.flags.retrieval import DENSE, KEEP, THRESHOLD, K
from sparse_embed.retrieval.metrics import check_unit_norm

_OTHERS = {
    "narrow_dense": flags.DEFINE_list(
        "narrow_dense", [], "More dense embeddings (.npy), such as 128-d ones, not re-ranked."
    ),
    "sparse": flags.DEFINE_list(
        "sparse", [], "Sparse embeddings (.npz) of one or several encoders."
    ),
    "sdh": flags.DEFINE_list("sdh", [], "Hash codes (.npz) of one or several encoders."),
}
_BUILD_THREADS = flags.DEFINE_integer(
    "build_threads",
    os.cpu_count() or 1,
    "Threads to build and to measure recall with; queries are always timed on one.",
    lower_bound=1,
)


def main() -> None:
    """Reads the flags and evaluates every method that they name."""
    folder = app.writable_folder("records", RECORDS.value)
    known = registry.all_methods()
    for name in ONLY.value:
        if name not in known:
            raise UsageError(f"--only={name}: expected some of {', '.join(known)}")
    if KEEP.value and not _OTHERS["sparse"].value:
        raise UsageError(f"{flags.FLAGS['keep'].serialize()} needs --sparse: it cuts nothing else")
    path = app.existing_path("dense", DENSE.value)
    data = registry.Data(
        registry.load("dense", path, DISTRACTORS.value),
        path,
        {name: [pathlib.Path(value) for value in flag.value] for name, flag in _OTHERS.items()},
        K.value,
        THRESHOLD.value,
        _BUILD_THREADS.value,
        KEEP.value,
    )
    if DISTRACTORS.value > data.distractors:
        print(f"--distractors={DISTRACTORS.value}: {path} has {data.distractors}")
    try:
        check_unit_norm(f"--dense={path}", data.dense.vectors)
        chosen = [
            method
            for name, make in known.items()
            if name in ONLY.value or not ONLY.value
            for method in make(data)
        ]
        task = identification.Task(data, folder, DATA_NAME.value, TIMED_QUERIES.value)
        identification.evaluate(chosen, task)
    except ValueError as error:
        raise UsageError(str(error)) from error
    same = {"data": DATA_NAME.value, "distractors": data.distractors}
    found = records.load(folder, "megaface")
    print(identification.table([record for record in found if same.items() <= record.items()]))


if __name__ == "__main__":
    app.run(main)
