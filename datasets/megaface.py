"""MegaFace and FaceScrub in the layout of the official development kit.

A list is JSON with the images' `path`, relative to the folder of images, and for FaceScrub (the
probes) the `id` of each; MegaFace (the distractors) has none. InsightFace's noise lists name images
that show somebody else, or no face. The kit's feature files are int32 `rows, cols, 4 * cols, 5` (5
is OpenCV's code of float32), then rows x cols float32, all little-endian: one file per image, of
dim rows and 1 column.

No image is ever replaced by another: missing and noisy ones are left out and named.
"""

import os
import pathlib
import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from sparse_embed.common.checks import check_choice
from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.reading import read_json, reading
from sparse_embed.datasets.examples import Examples
from sparse_embed.datasets.image_folder import ImageFiles

_FEATURE_HEADER = struct.Struct("<4i")
_CV_32F = 5


class ImageList(NamedTuple):
    """A list of the development kit.

    Attributes:
        name: name of its file.
        paths: paths of the images, relative to the folder of all images.
        ids: identity of each image, None for distractors.
    """

    name: str
    paths: tuple[str, ...]
    ids: tuple[str, ...] | None


class Selection(NamedTuple):
    """The images of a list that can be used, and those that cannot.

    Attributes:
        examples: the images that are there and not noisy; classes are the identities by name.
        missing: paths of images that are not in the folder.
        noisy: paths of images that are in the noise list.
    """

    examples: Examples
    missing: tuple[str, ...]
    noisy: tuple[str, ...]


def read_list(path: str | os.PathLike[str]) -> ImageList:
    """Reads a list of images of the development kit."""
    path = pathlib.Path(path)
    content = read_json(path, "a list of images in JSON")
    if not _is_list_of_names(content.get("path")):
        raise DataError(f'{path}: expected {{"path": [...]}} with a list of file names')
    paths = tuple(content["path"])
    for entry in paths:
        if pathlib.PurePosixPath(entry).is_absolute() or ".." in entry.split("/"):
            raise DataError(f"{path}: {entry!r}: expected paths inside the folder of images")
    ids = content.get("id")
    if ids is None:
        return ImageList(path.name, paths, None)
    if not _is_list_of_names(ids) or len(ids) != len(paths):
        raise DataError(f"{path}: expected `id` to be a list of {len(paths)} names")
    return ImageList(path.name, paths, tuple(ids))


def read_noises(path: str | os.PathLike[str]) -> frozenset[str]:
    """Reads a noise list: a name per line, # starts a comment."""
    with reading(path, "a noise list, a name per line in UTF-8"):
        lines = [line.strip() for line in pathlib.Path(path).read_text("utf-8").splitlines()]
    return frozenset(line for line in lines if line and not line.startswith("#"))


def noisy_images(images: ImageList, noises: Collection[str]) -> np.ndarray:
    """Returns which images are noisy, (n,) bool.

    MegaFace's noise list has whole paths, FaceScrub's only the last part.
    """
    return np.array(
        [path in noises or path.rpartition("/")[2] in noises for path in images.paths], bool
    )


def load(
    images: ImageList,
    folder: str | os.PathLike[str],
    noises: Collection[str] = frozenset(),
    image_shape: tuple[int, int, int] = (112, 112, 3),
    on_missing: str = "raise",
) -> Selection:
    """Finds the images of a list in a folder of aligned faces.

    Args:
        images: the list.
        folder: the paths of the list are relative to it.
        noises: names of noisy images, which are left out.
        image_shape: (height, width, channels) of every image; another size is an error.
        on_missing: what happens if images are missing: "raise", or "skip" with a warning.
    """
    check_choice("on_missing", on_missing, ["raise", "skip"])
    paths = [pathlib.Path(folder) / path for path in images.paths]
    absent = ~np.fromiter((path.is_file() for path in paths), bool, len(paths))
    noisy = noisy_images(images, noises)
    if absent.any():
        first = images.paths[int(np.argmax(absent))]
        message = (
            f"{images.name}: {absent.sum()} of {len(paths)} images are not in {folder}, "
            f"the first is {first}"
        )
        if on_missing == "raise":
            raise DataError(message)
        logging.warning(message)
    names, labels = np.unique(images.ids or [], return_inverse=True)
    everything = Examples(
        name=images.name,
        shape=image_shape,
        source=ImageFiles(paths, image_shape, resize=False),
        rows=np.arange(len(paths)),
        labels=np.full(len(paths), -1, np.int32) if images.ids is None else labels.astype(np.int32),
        class_names=tuple(map(str, names)),
    )
    return Selection(
        everything.take(~absent & ~noisy),
        missing=tuple(images.paths[place] for place in np.flatnonzero(absent)),
        noisy=tuple(images.paths[place] for place in np.flatnonzero(noisy)),
    )


def read_features(path: str | os.PathLike[str]) -> np.ndarray:
    """Reads a feature file as float32 (rows, cols)."""
    data = pathlib.Path(path).read_bytes()
    if len(data) < _FEATURE_HEADER.size:
        raise DataError(f"{path}: {len(data)} bytes, too few for the header")
    rows, cols, stride, kind = _FEATURE_HEADER.unpack_from(data)
    if rows < 0 or cols < 0 or stride != 4 * cols or kind != _CV_32F:
        raise DataError(
            f"{path}: header {rows}, {cols}, {stride}, {kind}: expected rows, cols, 4 * cols, 5"
        )
    wanted = _FEATURE_HEADER.size + 4 * rows * cols
    if len(data) != wanted:
        raise DataError(f"{path}: {len(data)} bytes, expected {wanted} for {rows} x {cols}")
    return np.frombuffer(data, "<f4", offset=_FEATURE_HEADER.size).reshape(rows, cols).copy()


def write_features(path: str | os.PathLike[str], features: np.ndarray) -> None:
    """Writes a feature file; a vector becomes a column, as in the development kit."""
    matrix = np.asarray(features, "<f4")
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2:
        raise ValueError(f"features of shape {matrix.shape}: expected a vector or a matrix")
    header = _FEATURE_HEADER.pack(*matrix.shape, 4 * matrix.shape[1], _CV_32F)
    with atomic_path(path) as temporary:
        temporary.write_bytes(header + matrix.tobytes())


def write_feature_tree(
    folder: str | os.PathLike[str], paths: Sequence[str], features: np.ndarray, ending: str
) -> None:
    """Writes row i of `features` to `<folder>/<paths[i]><ending>`, where the kit looks for it."""
    if np.ndim(features) != 2 or len(features) != len(paths):
        raise ValueError(
            f"features of shape {np.shape(features)}: expected a row for each of {len(paths)} paths"
        )
    for path, row in zip(
        progress_bar(paths, desc="features", unit=" files"), features, strict=True
    ):
        target = pathlib.Path(folder) / f"{path}{ending}"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_features(target, row)


def read_feature_tree(
    folder: str | os.PathLike[str], paths: Sequence[str], ending: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Reads the files that the kit or `write_feature_tree` wrote for the given images.

    Returns:
        (features, missing): float32, a row for each path that has a file, in their order; and the
        paths that have none.
    """
    rows, missing = [], []
    for path in progress_bar(paths, desc="features", unit=" files"):
        file = pathlib.Path(folder) / f"{path}{ending}"
        if not file.is_file():
            missing.append(path)
            continue
        rows.append(read_features(file).ravel())
        if len(rows[-1]) != len(rows[0]):
            raise DataError(f"{file}: {len(rows[-1])} numbers, the first file has {len(rows[0])}")
    return np.array(rows, np.float32), tuple(missing)


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
