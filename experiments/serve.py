r"""Serves nearest neighbours over HTTP, with a page to look at them.

    python -m sparse_embed.experiments.serve --model_dir=runs/sparse --image_folder=photos
    python -m sparse_embed.experiments.serve --index=items.index --dense=items.npy

The first serves a folder of images: it is embedded as by `search_images`, and the index is kept.
With --dense_model_dir, the run of a dense encoder, results can be re-ranked. The second serves
vectors: clients send sparse ones, and dense ones to re-rank with; --model_dir and --dense_model_dir
let them send images. --index may be an .index file, sparse embeddings (.npz), or the folder of a
ShardedIndex. The service only reads, and listens on this machine alone unless --host says
otherwise.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app
from sparse_embed.flags.embedding import IMAGE_FOLDER
from sparse_embed.flags.output import ENCODER, MODEL_DIR
from sparse_embed.flags.retrieval import DENSE, INDEX, NUM_THREADS
from sparse_embed.flags.serving import (
    HOST,
    MAX_BODY,
    MAX_PIXELS,
    MAX_QUEUE,
    MAX_SECONDS,
    OPEN_PAGE,
    PORT,
)

_DENSE_MODEL_DIR = flags.DEFINE_string(
    "dense_model_dir", None, "Folder of the run of a dense encoder, to re-rank with."
)
_STORED_IMAGES = flags.DEFINE_string(
    "stored_images", None, "Pictures (.npy) of the rows of --index, as draw_sets writes them."
)


def main() -> None:
    """Reads the flags, opens what they name, serves it."""
    from sparse_embed.experiments.encoders.encoder import open_encoder
    from sparse_embed.experiments.serving import collection as collections
    from sparse_embed.experiments.serving import server
    from sparse_embed.experiments.serving.limits import Limits
    from sparse_embed.experiments.serving.pictures import StoredPictures

    def encoder(flag: str, value: str | None):  # type: ignore[no-untyped-def]
        if value is None:
            return None
        return open_encoder(app.existing_path(flag, value), ENCODER.value, NUM_THREADS.value)

    limits = Limits(MAX_BODY.value, MAX_PIXELS.value, MAX_QUEUE.value, MAX_SECONDS.value)
    if IMAGE_FOLDER.value:
        for flag in (DENSE, _STORED_IMAGES):
            if flag.value:
                raise UsageError(f"--{flag.name}={flag.value}: expected without --image_folder")
        folder = app.existing_path("image_folder", IMAGE_FOLDER.value)
        model = app.existing_path("model_dir", MODEL_DIR.value)
        sparse = encoder("model_dir", MODEL_DIR.value)
        dense = encoder("dense_model_dir", _DENSE_MODEL_DIR.value)
        default = str((model if model.is_dir() else model.parent) / "images.index")
        index_path = app.writable_file("index", INDEX.value or default, ".index")
        found = collections.open_folder(folder, index_path, sparse, dense, NUM_THREADS.value)
    else:
        rows = collections.open_rows("index", app.existing_path("index", INDEX.value))
        dense = pictures = None
        if DENSE.value:
            dense = collections.open_dense("dense", app.existing_path("dense", DENSE.value))
        if _STORED_IMAGES.value:
            path = app.existing_path("stored_images", _STORED_IMAGES.value)
            pictures = StoredPictures.open("stored_images", path, collections.ids_of(rows))
        found = collections.Collection(
            rows,
            encoder("model_dir", MODEL_DIR.value),
            dense,
            encoder("dense_model_dir", _DENSE_MODEL_DIR.value),
            pictures,
            NUM_THREADS.value,
        )
    server.run(found, limits, HOST.value, PORT.value, OPEN_PAGE.value)


if __name__ == "__main__":
    app.run(main)
