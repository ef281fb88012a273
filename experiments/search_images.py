r"""Finds the images in a folder that are most like a given one.

    python -m sparse_embed.experiments.search_images --model_dir=runs/sparse --image_folder=photos \
        --query=photo.jpg --output=nearest.png

Embeds the folder with the encoder in --model_dir (a run's folder or a `.keras` file; --encoder
takes another format of a run) and keeps the index in --index; the next call opens it, unless
encoder or folder have changed. Prints the nearest images as a table and writes a figure of them. If
the query is in the folder it is left out; --noleave_out_query keeps it.
"""

import os

from absl import flags

from sparse_embed.experiments.core.run import encoder_path
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.encoders.encoder import open_encoder
from sparse_embed.experiments.encoders.image_search import (
    draw,
    embed_image,
    nearest,
    open_index,
)
from sparse_embed.flags import app
from sparse_embed.flags.embedding import IMAGE_FOLDER
from sparse_embed.flags.output import ENCODER, MODEL_DIR, OUTPUT
from sparse_embed.flags.retrieval import INDEX

_QUERY = flags.DEFINE_string("query", None, "Image to search for.")
_LEAVE_OUT_QUERY = flags.DEFINE_bool(
    "leave_out_query",
    True,
    "Leaves the query itself out of the results if it is in the folder; copies of it stay.",
)
_NEAREST = flags.DEFINE_integer("nearest", 10, "How many images to show.", lower_bound=1)


def main() -> None:
    """Reads the flags, searches, shows the results."""
    model = app.existing_path("model_dir", MODEL_DIR.value)
    if ENCODER.value == "keras":
        encoder_path("model_dir", str(model))
    folder = app.existing_path("image_folder", IMAGE_FOLDER.value)
    query = app.existing_path("query", _QUERY.value)
    output = app.writable_file("output", OUTPUT.value or "nearest.png", ".png")
    default = str((model if model.is_dir() else model.parent) / "images.index")
    index_path = app.writable_file("index", INDEX.value or default, ".index")
    encoder = open_encoder(model, ENCODER.value, os.cpu_count() or 1)
    code = embed_image(encoder, query)
    index, paths = open_index(index_path, folder, encoder)
    found, scores = nearest(index, paths, code, _NEAREST.value + _LEAVE_OUT_QUERY.value)
    if _LEAVE_OUT_QUERY.value:
        others = [place for place, path in enumerate(found) if path.resolve() != query.resolve()]
        others = others[: _NEAREST.value]
        found, scores = [found[place] for place in others], scores[others]
    if not found:
        print("no image shares an active dimension with the query")
        return
    ranked = enumerate(zip(scores, found, strict=True), start=1)
    rows = [[rank, f"{score:.4f}", path] for rank, (score, path) in ranked]
    print(text_table(["rank", "score", "image"], rows))
    draw(query, found, scores, folder, output)
    print(output)


if __name__ == "__main__":
    app.run(main)
