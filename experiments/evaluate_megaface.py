r"""Identification among distractors: recall and time per query of every method, a record each.

    python -m sparse_embed.experiments.evaluate_megaface --dense=runs/dense512/identification.npy \
        --sparse=runs/flops_30/identification.npz,runs/l1_0.6/identification.npz
    python -m sparse_embed.experiments.evaluate_megaface --what=gallery \
        --database=runs/flops/identification.npz --gallery_images=runs/images/identification.npy

Each file holds the same images in the same order: first the probes, which are the mates of each
other, labelled with their identities, then the distractors, labelled -1. Recall is that of
MegaFace, and of the authors' variant of it (see `retrieval.megaface`). All methods re-rank with
--dense, as in the paper; PCA, LSH, IVF-PQ and HNSW compress it. The shortlist of sparse embeddings
holds the rows that score at least --threshold, at most --k; those of the others hold the best --k.

With --keep=64,32:8 sparse embeddings are also searched cut: rows and queries to their 64 largest
values, and rows to 32 with queries of 8. One encoder thus gives a curve.

Recall is over all probes. Times are the median over some of them, one at a time on one thread, all
methods in turns (see `methods.timing`); nothing else should run. Records whose inputs and settings
are unchanged are kept. A table of all of them is printed at the end: F is multiply-adds per row, R
the sub-optimality ratio.

--what=gallery records what the report's gallery shows: queries, their results, and the images that
dimensions respond to. The images are bytes, (rows, height, width), as `prepare_data` draws them,
one for each row of the embeddings. Some queries are drawn from all that have a mate, and some more
from those whose first result is wrong.
"""

import pathlib

import numpy as np

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import load_flag
from sparse_embed.experiments.evaluation import gallery, identification
from sparse_embed.experiments.methods import registry
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.flags.options.evaluate import MEGAFACE as OPTIONS
from sparse_embed.flags.options.evaluate import Gallery, Megaface
from sparse_embed.retrieval.metrics import check_unit_norm


def main(options: Megaface | Gallery) -> None:
    """Evaluates every method that the options name, or makes the gallery."""
    folder = app.writable_folder("records", options.records)
    if isinstance(options, Gallery):
        _make_gallery(options, folder)
    else:
        _identify(options, folder)


def _identify(options: Megaface, folder: pathlib.Path) -> None:
    known = registry.all_methods()
    for name in options.only:
        if name not in known:
            raise UsageError(f"--only={name}: expected some of {', '.join(known)}")
    if options.keep and not options.sparse:
        given = fields.budgets_text(options.keep)
        raise UsageError(f"--keep={given} needs --sparse: it cuts nothing else")
    path = app.existing_path("dense", options.dense)
    others = {
        name: [pathlib.Path(value) for value in getattr(options, name)]
        for name in ("narrow_dense", "sparse", "sdh")
    }
    data = registry.Data(
        registry.load("dense", path, options.distractors),
        path,
        others,
        options.k,
        options.threshold,
        options.build_threads,
        options.keep,
    )
    if options.distractors > data.distractors:
        print(f"--distractors={options.distractors}: {path} has {data.distractors}")
    try:
        check_unit_norm(f"--dense={path}", data.dense.vectors)
        chosen = [
            method
            for name, make in known.items()
            if name in options.only or not options.only
            for method in make(data)
        ]
        task = identification.Task(data, folder, options.data_name, options.timed_queries)
        identification.evaluate(chosen, task)
    except ValueError as error:
        raise UsageError(str(error)) from error
    same = {"data": options.data_name, "distractors": data.distractors}
    saved = records.load(folder, "megaface")
    print(identification.table([record for record in saved if same.items() <= record.items()]))


def _make_gallery(options: Gallery, folder: pathlib.Path) -> None:
    path = app.existing_path("database", options.database)
    image_path = app.existing_path("gallery_images", options.gallery_images)
    embeddings = load_flag("database", path, sparse=True)
    images = read_npy(image_path, mmap=True, expected="the images of the rows")
    if images.ndim != 3 or images.dtype != np.uint8:
        raise DataError(
            f"--gallery_images={image_path}: expected uint8 images (n, height, width), got "
            f"{images.shape} of {images.dtype}"
        )
    if len(images) != len(embeddings.labels):
        raise UsageError(
            f"--database={path}: {len(embeddings.labels)} rows: expected one for each of the "
            f"{len(images)} images in {image_path}"
        )
    gallery.update(folder, path, embeddings, images, options.data_name)


if __name__ == "__main__":
    app.run(main, OPTIONS)
