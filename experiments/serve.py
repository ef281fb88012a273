r"""Serves nearest neighbours over HTTP, with a page to look at them.

    python -m sparse_embed.experiments.serve --run_dir=runs/reproduce/quick --open_page
    python -m sparse_embed.experiments.serve --model_dir=runs/sparse --image_folder=photos
    python -m sparse_embed.experiments.serve --index=items.index --dense=items.npy

The first, which `make demo` runs, serves the words of a reproduction, sparse embeddings first,
re-ranked by dense ones if one likes. The second serves a folder of images: it is embedded as by
`search`, and the index is kept. With --dense_model_dir, the run of a dense encoder, results can be
re-ranked. The third serves vectors: clients send sparse ones, and dense ones to re-rank with;
--model_dir and --dense_model_dir let them send images. --index may be an .index file, sparse
embeddings (.npz), or the folder of a ShardedIndex. The service only reads, and listens on this
machine alone unless --host says otherwise.
"""

import pathlib
from typing import TYPE_CHECKING

from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app
from sparse_embed.flags.options.serve import Options

if TYPE_CHECKING:
    from sparse_embed.experiments.encoders.encoder import Encoder
    from sparse_embed.experiments.serving.collection import Collection


def main(options: Options) -> None:
    """Opens what the options name, and serves it."""
    from sparse_embed.experiments.serving import server
    from sparse_embed.experiments.serving.limits import Limits

    limits = Limits(options.max_body, options.max_pixels, options.max_queue, options.max_seconds)
    if options.run_dir:
        collection = _open_reproduction(options)
    elif options.image_folder:
        collection = _open_images(options)
    else:
        collection = _open_vectors(options)
    server.run(collection, limits, options.host, options.port, options.open_page)


def _without(options: Options, kind: str, *names: str) -> None:
    for name in names:
        if value := getattr(options, name):
            raise UsageError(f"--{name}={value}: expected without --{kind}")


def _open_reproduction(options: Options) -> "Collection":
    from sparse_embed.experiments.serving import demo

    others = ("image_folder", "index", "dense", "stored_images", "model_dir", "dense_model_dir")
    _without(options, "run_dir", *others)
    reproduction = demo.find(pathlib.Path(options.run_dir or ""))
    if reproduction is None:
        raise UsageError(
            f"--run_dir={options.run_dir}: expected what `make reproduce` leaves: run it first "
            "(12 minutes on 2 cores)"
        )
    return demo.open_all(reproduction, options.num_threads)


def _open_images(options: Options) -> "Collection":
    from sparse_embed.experiments.encoders.encoder import open_encoder
    from sparse_embed.experiments.serving import collection

    _without(options, "image_folder", "dense", "stored_images")
    folder = app.existing_path("image_folder", options.image_folder)
    model = app.existing_path("model_dir", options.model_dir)
    sparse = open_encoder(model, options.encoder, options.num_threads)
    dense = _encoder(options, "dense_model_dir")
    default = str((model if model.is_dir() else model.parent) / "images.index")
    index_path = app.writable_file("index", options.index or default, ".index")
    return collection.open_folder(folder, index_path, sparse, dense, options.num_threads)


def _open_vectors(options: Options) -> "Collection":
    from sparse_embed.experiments.serving import collection
    from sparse_embed.experiments.serving.pictures import StoredPictures

    rows = collection.open_rows("index", app.existing_path("index", options.index))
    dense = pictures = None
    if options.dense:
        dense = collection.open_dense("dense", app.existing_path("dense", options.dense))
    if options.stored_images:
        path = app.existing_path("stored_images", options.stored_images)
        pictures = StoredPictures.open("stored_images", path, collection.ids_of(rows))
    sparse_encoder = _encoder(options, "model_dir")
    dense_encoder = _encoder(options, "dense_model_dir")
    return collection.Collection(
        rows, sparse_encoder, dense, dense_encoder, pictures, options.num_threads
    )


def _encoder(options: Options, name: str) -> "Encoder | None":
    from sparse_embed.experiments.encoders.encoder import open_encoder

    if (value := getattr(options, name)) is None:
        return None
    return open_encoder(app.existing_path(name, value), options.encoder, options.num_threads)


if __name__ == "__main__":
    app.run(main, Options)
