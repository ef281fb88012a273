r"""Finds the images in a folder that are most like a given one.

    python -m sparse_embed.experiments.search_images --model_dir=runs/sparse --image_folder=photos \
        --query=photo.jpg --output=nearest.png

Embeds the folder with the encoder in --model_dir (a run's folder or a `.keras` file) and keeps the
index in --index; the next call opens it, unless encoder or folder have changed. Prints the nearest
images as a table and writes a figure of them.
"""

from absl import flags

from sparse_embed.experiments.evaluation.image_search import draw, embed_image, open_index
from sparse_embed.experiments.reporting.text_table import text_table
from sparse_embed.experiments.training.run import encoder_path, load_encoder
from sparse_embed.flags import app
from sparse_embed.flags.output import MODEL_DIR

_FOLDER = flags.DEFINE_string("image_folder", None, "Folder to search, and all folders in it.")
_QUERY = flags.DEFINE_string("query", None, "Image to search for.")
_INDEX = flags.DEFINE_string(
    "index", None, "File of the index; default: images.index in the run's folder."
)
_NEAREST = flags.DEFINE_integer("nearest", 10, "How many images to show.", lower_bound=1)


def main() -> None:
    """Reads the flags, searches, shows the results."""
    model = app.existing_path("model_dir", MODEL_DIR.value)
    encoder_file = encoder_path("model_dir", str(model))
    folder = app.existing_path("image_folder", _FOLDER.value)
    query = app.existing_path("query", _QUERY.value)
    output = app.writable_file("output", flags.FLAGS.output or "nearest.png", ".png")
    default = str(encoder_file.with_name("images.index"))
    index_path = app.writable_file("index", _INDEX.value or default, ".index")
    encoder = load_encoder(encoder_file)
    code = embed_image(encoder, query)
    index, paths = open_index(index_path, folder, encoder_file, encoder)
    scores, ids = index.search(code, min(_NEAREST.value, len(paths)))
    scores, ids = scores[0][ids[0] >= 0], ids[0][ids[0] >= 0]
    if not len(ids):
        print("no image shares an active dimension with the query")
        return
    nearest = [paths[place] for place in ids]
    found = enumerate(zip(scores, nearest, strict=True), start=1)
    rows = [[rank, f"{score:.4f}", path] for rank, (score, path) in found]
    print(text_table(["rank", "score", "image"], rows))
    draw(query, nearest, scores, output)
    print(output)


if __name__ == "__main__":
    app.run(main)
