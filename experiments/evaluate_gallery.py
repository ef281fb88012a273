r"""Makes the report's gallery: queries, their results, and the images that dimensions respond to.

    python -m sparse_embed.experiments.evaluate_gallery --database=runs/flops/identification.npz \
        --gallery_images=runs/images/identification.npy --records=runs/records

The images are bytes, (rows, height, width), as `datasets.evaluation_sets` stores them, one for each
row of the embeddings; rows labelled -1 are distractors. Some queries are drawn from all that have a
mate, and some more from those whose first result is wrong.
"""

import numpy as np
from absl import flags

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.experiments.core.embedding_files import load_flag
from sparse_embed.experiments.evaluation import gallery
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DATA_NAME
from sparse_embed.flags.output import RECORDS
from sparse_embed.flags.retrieval import DATABASE

_IMAGES = flags.DEFINE_string("gallery_images", None, "Images of the database's rows (.npy).")


def main() -> None:
    """Reads the flags and makes the gallery."""
    folder = app.writable_folder("records", RECORDS.value)
    path = app.existing_path("database", DATABASE.value)
    image_path = app.existing_path("gallery_images", _IMAGES.value)
    found = load_flag("database", path, sparse=True)
    images = read_npy(image_path, mmap=True, expected="the images of the rows")
    if images.ndim != 3 or images.dtype != np.uint8:
        raise DataError(
            f"--gallery_images={image_path}: expected uint8 images (n, height, width), got "
            f"{images.shape} of {images.dtype}"
        )
    if len(images) != len(found.labels):
        raise UsageError(
            f"--database={path}: {len(found.labels)} rows: expected one for each of the "
            f"{len(images)} images in {image_path}"
        )
    gallery.update(folder, path, found, images, DATA_NAME.value)


if __name__ == "__main__":
    app.run(main)
