"""The images in a folder that are most like a given one: an index of the folder, and a picture."""

import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_embed import retrieval
from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import atomic_path
from sparse_embed.experiments.evaluation.embedding import embed
from sparse_embed.experiments.evaluation.records import fingerprint

if TYPE_CHECKING:
    import keras


def open_index(
    path: pathlib.Path, folder: pathlib.Path, encoder_file: pathlib.Path, encoder: "keras.Model"
) -> tuple[retrieval.SparseIndex, list[pathlib.Path]]:
    """Opens the index of a folder, or builds it if it is absent or out of date.

    Returns:
        The index, and the path of the image in each of its rows. Broken images are left out.
    """
    from sparse_embed.datasets import image_folder

    try:
        examples = image_folder.load_flat(folder, encoder.input_shape[1:], on_error="skip")
    except ValueError as error:
        raise UsageError(f"--image_folder: {error}") from error
    found = {}
    for image in image_folder.kept_paths(examples):
        status = image.stat()
        found[str(image.resolve())] = [status.st_size, status.st_mtime_ns]
    mark = fingerprint(found, [encoder_file])
    note = path.with_suffix(".json")
    if path.exists() and note.exists():
        kept = json.loads(note.read_text())
        if kept["fingerprint"] == mark:
            print(f"{path}: opened, {len(kept['paths'])} images")
            return retrieval.SparseIndex.load(path), [pathlib.Path(name) for name in kept["paths"]]
    vectors, _ = embed(encoder, examples.evaluation_batches(128), sparse=True)
    paths = image_folder.kept_paths(examples)
    index = retrieval.SparseIndex.build(vectors)
    note.unlink(missing_ok=True)  # the index comes first: a note always belongs to the index
    index.save(path)
    with atomic_path(note) as temporary:
        content = {"fingerprint": mark, "paths": [str(image.resolve()) for image in paths]}
        temporary.write_text(json.dumps(content))
    print(f"{path}: built, {len(paths)} images")
    return index, paths


def embed_image(encoder: "keras.Model", path: pathlib.Path) -> Any:
    """Returns the embedding of one image, a CSR row."""
    from sparse_embed.datasets.encoded_images import decode_image
    from sparse_embed.datasets.examples import normalise

    try:
        image = decode_image(path.read_bytes(), encoder.input_shape[1:], resize=True)
    except Exception as error:  # TensorFlow raises many kinds
        raise UsageError(f"--query={path}: expected an image that can be read") from error
    import scipy.sparse

    return scipy.sparse.csr_array(encoder(normalise(image)[None]).numpy())


def draw(
    query: pathlib.Path, paths: list[pathlib.Path], scores: np.ndarray, output: pathlib.Path
) -> None:
    """Writes a figure of the query and its results, best first."""
    from matplotlib.figure import Figure
    from PIL import Image  # comes with matplotlib

    columns = min(6, 1 + len(paths))
    rows = -(-(1 + len(paths)) // columns)
    figure = Figure(figsize=(1.8 * columns, 2.1 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    titles = [
        "query",
        *(f"{score:.3f}\n{path.name}" for path, score in zip(paths, scores, strict=True)),
    ]
    for axis in axes:
        axis.set_axis_off()
    for axis, path, title in zip(axes, [query, *paths], titles, strict=False):
        axis.imshow(np.asarray(Image.open(path).convert("RGB")))
        axis.set_title(title, fontsize=8)
    with atomic_path(output) as temporary:
        figure.savefig(temporary, dpi=120)
