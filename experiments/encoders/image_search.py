"""The images in a folder that are most like a given one: an index of the folder, and a picture."""

import io
import json
import pathlib
from typing import Any

import numpy as np

from sparse_embed import retrieval
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.provenance import provenance
from sparse_embed.common.reading import read_json, reading
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.core.records import fingerprint
from sparse_embed.experiments.encoders.embedding import embed, examples_at_once
from sparse_embed.experiments.encoders.encoder import Encoder

_LINE, _LINES = 24, 3  # characters and lines of a caption under which no other is hidden


def image_shape(encoder: Encoder) -> tuple[int, int, int]:
    """Returns the shape of the images that an encoder takes; UsageError if it takes vectors."""
    if len(encoder.input_shape) != 3:
        raise UsageError(f"{encoder.path}: expected an encoder of images, not of vectors")
    height, width, channels = encoder.input_shape
    return height, width, channels


def open_index(
    path: pathlib.Path, folder: pathlib.Path, encoder: Encoder
) -> tuple[retrieval.SparseIndex, list[pathlib.Path]]:
    """Opens the index of a folder, or builds it if it is absent or out of date.

    Args:
        path: file of the index.
        folder: folder of the images.
        encoder: the encoder.

    Returns:
        The index, and the path in `folder` of the image in each of its rows. Broken images are left
        out.
    """
    from sparse_embed.datasets import image_folder

    shape = image_shape(encoder)
    try:
        examples = image_folder.load_flat(folder, shape, on_error="skip")
    except ValueError as error:
        raise UsageError(f"--image_folder: {error}") from error
    mark = fingerprint(_stamps(folder, image_folder.kept_paths(examples)), encoder.files)
    note = path.with_suffix(".json")
    if path.exists() and note.exists():
        kept = read_json(note, "the note on an index; delete it to build the index again")
        if kept["fingerprint"] == mark:
            with reading(note, "the paths of the images in an index"):
                names = [folder / name for name in kept["paths"]]
            index = retrieval.SparseIndex.load(path)
            if index.shape[0] != len(names):
                raise DataError(f"{note}: {len(names)} images, but {index.shape[0]} rows in {path}")
            print(f"{path}: opened, {len(names)} images")
            return index, names
    vectors, _ = embed(encoder, examples.evaluation_batches(examples_at_once(shape)), sparse=True)
    paths = image_folder.kept_paths(examples)
    index = retrieval.SparseIndex.build(vectors)
    note.unlink(missing_ok=True)  # the index comes first: a note always belongs to the index
    index.save(path)
    with atomic_path(note) as temporary:
        content = {
            "fingerprint": mark,
            "paths": [str(image.relative_to(folder)) for image in paths],
        }
        temporary.write_text(json.dumps(content))
    print(f"{path}: built, {len(paths)} images")
    return index, paths


def dense_rows(
    path: pathlib.Path, folder: pathlib.Path, paths: list[pathlib.Path], encoder: Encoder
) -> np.ndarray:
    """Returns dense embeddings of the images in an index, to re-rank with; they are kept in a file.

    Args:
        path: the `.npy` file, made again if it is absent or out of date.
        folder: folder of the images.
        paths: the image in each row, as `open_index` returns them.
        encoder: the dense encoder.
    """
    from sparse_embed.datasets.image_folder import unlabelled

    mark = fingerprint(_stamps(folder, paths), encoder.files)
    if path.exists():
        kept = embedding_files.load(path)
        if kept.provenance.get("fingerprint") == mark:
            return np.asarray(kept.vectors)
    shape = image_shape(encoder)
    examples = unlabelled(folder.name, paths, shape, "raise")
    batches = examples.evaluation_batches(examples_at_once(shape))
    vectors, labels = embed(encoder, batches, sparse=False)
    note = {"fingerprint": mark, **provenance()}
    embedding_files.save(path, Embeddings(vectors, labels, note))
    print(f"{path}: built, {len(paths)} images")
    return np.asarray(vectors)


def _stamps(folder: pathlib.Path, paths: list[pathlib.Path]) -> dict[str, list[int]]:
    """Returns size and time of each image, by its path in the folder."""
    found = {}
    for path in paths:
        status = path.stat()
        found[str(path.relative_to(folder))] = [status.st_size, status.st_mtime_ns]
    return found


def embed_image(encoder: Encoder, path: pathlib.Path) -> Any:
    """Returns the embedding of one image, a CSR row."""
    import scipy.sparse

    from sparse_embed.datasets.encoded_images import decode_query

    try:
        image = decode_query(path.read_bytes(), image_shape(encoder))
    except (OSError, ValueError) as error:
        raise UsageError(f"--query={path}: expected an image that can be read: {error}") from error
    return scipy.sparse.csr_array(encoder.encode(image[None]))


def nearest(
    index: retrieval.SparseIndex, paths: list[pathlib.Path], code: Any, count: int
) -> tuple[list[pathlib.Path], np.ndarray]:
    """Returns the `count` images most like an embedding, best first, and their scores."""
    scores, ids = index.search(code, min(count, len(paths)))
    found = ids[0] >= 0
    return [paths[place] for place in ids[0][found]], scores[0][found]


def draw(
    query: pathlib.Path,
    paths: list[pathlib.Path],
    scores: np.ndarray,
    folder: pathlib.Path,
    output: pathlib.Path,
) -> None:
    """Writes a figure of the query and its results, best first, with their paths in `folder`."""
    from matplotlib.figure import Figure
    from PIL import Image  # comes with matplotlib

    columns = min(6, 1 + len(paths))
    rows = -(-(1 + len(paths)) // columns)
    titles = [
        f"query\n{_caption(query.name)}",
        *(
            f"{score:.3f}\n{_caption(str(path.relative_to(folder)))}"
            for path, score in zip(paths, scores, strict=True)
        ),
    ]
    lines = 1 + max(title.count("\n") for title in titles)
    figure = Figure(figsize=(1.8 * columns, (1.9 + 0.15 * lines) * rows))
    figure.set_layout_engine("constrained", h_pad=0.08)  # inches; else the top scores are cut
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, path, title in zip(axes, [query, *paths], titles, strict=False):
        axis.imshow(np.asarray(Image.open(path).convert("RGB")))
        axis.set_title(title, fontsize=8)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    with atomic_path(output) as temporary:
        temporary.write_bytes(picture.getbuffer())


def _caption(name: str) -> str:
    """Returns a path in lines as long as an image is wide; the start of a very long one is cut."""
    longest = _LINE * _LINES
    if len(name) > longest:
        name = "…" + name[1 - longest :]
    return "\n".join(name[start : start + _LINE] for start in range(0, len(name), _LINE))
