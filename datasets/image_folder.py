"""Your own images: a folder per class, or a flat folder without labels.

    photos/cat/1.jpg photos/cat/2.png photos/dog/a.jpg   ->  load("photos", (112, 112, 3))
    database/1.jpg database/more/2.jpg                   ->  load_flat("database", (112, 112, 3))

Images may be of any size, grey or colour; they are scaled and cropped to the shape asked for.
"""

import os
import pathlib
from collections.abc import Sequence

import numpy as np

from sparse_embed.datasets.encoded_images import EncodedImages
from sparse_embed.datasets.examples import Examples
from sparse_embed.datasets.shift_flip import random_flip

_SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".bmp"}


class ImageFiles(EncodedImages):
    """Images stored one per file.

    Attributes:
        paths: path of the image in each row.
    """

    def __init__(
        self,
        paths: Sequence[pathlib.Path],
        image_shape: tuple[int, int, int],
        on_error: str = "raise",
        resize: bool = True,
    ):
        super().__init__(image_shape, on_error, resize)
        self.paths = paths

    def read(self, row: int) -> bytes:
        """Returns the content of the file."""
        data = self.paths[row].read_bytes()
        if not data:
            raise ValueError(f"{self.paths[row]}: empty file")
        return data

    def describe(self, row: int) -> str:
        """Returns the path."""
        return str(self.paths[row])


def load(
    folder: str | os.PathLike[str], image_shape: tuple[int, int, int], on_error: str = "raise"
) -> Examples:
    """Finds images stored in a folder per class; the folders' names are the classes' names.

    Args:
        folder: its sub-folders are the classes, and may have sub-folders of their own. Files that
            are not named like images (.jpg, .jpeg, .png, .gif, .bmp) are ignored, as are folders
            without images.
        image_shape: (height, width, channels), 1 channel for grey and 3 for colour.
        on_error: what happens at a broken image when it is read: "raise", or "skip" with a warning.
            `examples.source.failures` then has the row and the reason of each.
    """
    folder = pathlib.Path(folder)
    stray = _images(folder, "*")
    if stray:
        raise ValueError(f"{stray[0]}: expected images only in folders that name their class")
    groups = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            groups[path.name] = _images(path, "**/*")
    groups = {name: paths for name, paths in groups.items() if paths}
    if not groups:
        raise ValueError(f"{folder}: expected sub-folders with images, found none")
    counts = [len(paths) for paths in groups.values()]
    return Examples(
        name=folder.name,
        shape=image_shape,
        source=ImageFiles(
            [path for paths in groups.values() for path in paths], image_shape, on_error
        ),
        rows=np.arange(sum(counts)),
        labels=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        class_names=tuple(groups),
        augment=random_flip,
    )


def load_flat(
    folder: str | os.PathLike[str], image_shape: tuple[int, int, int], on_error: str = "raise"
) -> Examples:
    """Finds all images in a folder and below, without labels, in the order of their paths."""
    folder = pathlib.Path(folder)
    paths = _images(folder, "**/*")
    if not paths:
        raise ValueError(f"{folder}: expected images, found none")
    return Examples(
        name=folder.name,
        shape=image_shape,
        source=ImageFiles(paths, image_shape, on_error),
        rows=np.arange(len(paths)),
        labels=np.full(len(paths), -1, np.int32),
        class_names=(),
        augment=random_flip,
    )


def kept_paths(examples: Examples) -> list[pathlib.Path]:
    """Returns the paths of all images but those skipped so far, in order.

    After a pass over `evaluation_batches`, these are the images that came out, one by one.
    """
    source = examples.source
    if not isinstance(source, ImageFiles):
        raise ValueError(f"{examples.name}: expected images stored one per file")
    return [source.paths[row] for row in examples.rows.tolist() if row not in source.failures]


def _images(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    found = folder.glob(pattern)
    return sorted(path for path in found if path.suffix.lower() in _SUFFIXES and path.is_file())
