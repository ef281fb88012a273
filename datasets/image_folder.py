"""Your own images: a folder per class, or any folder without labels.

    photos/cat/1.jpg photos/cat/2.png photos/dog/a.jpg   ->  load("photos", (112, 112, 3))
    database/1.jpg database/more/2.jpg                   ->  load_flat("database", (112, 112, 3))

Images may be of any size, grey or colour; they are scaled and cropped to the shape asked for. Files
that are not named like images (.jpg, .jpeg, .png, .gif, .bmp) and all that is hidden (.name) are
ignored.
"""

import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging

from sparse_embed.common.failures import DataError
from sparse_embed.datasets.encoded_images import EncodedImages
from sparse_embed.datasets.examples import Examples
from sparse_embed.datasets.image_headers import check_header
from sparse_embed.datasets.shift_flip import random_flip

_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
_BEGINNING = 1 << 16  # bytes in which most images have their header


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

    @property
    def files(self) -> Sequence[pathlib.Path]:
        """The files of all images."""
        return self.paths

    def check_header(self, row: int) -> None:
        """Checks the header; reads no more than the beginning of the file where that will do."""
        try:
            with open(self.paths[row], "rb") as file:
                check_header(file.read(_BEGINNING), self.size)
        except ValueError:
            super().check_header(row)


def load(
    folder: str | os.PathLike[str],
    image_shape: tuple[int, int, int],
    on_error: str = "raise",
    mirror: bool = True,
) -> Examples:
    """Finds images stored in a folder per class.

    Every folder that holds images is a class. Its name is its path within `folder`: `cat`, or
    `greek/alpha` for folders within folders.

    Args:
        folder: all images are in folders below it. A folder that holds both images and folders of
            images is refused, since they could be one class or several.
        image_shape: (height, width, channels), 1 channel for grey and 3 for colour.
        on_error: what happens at a broken image when it is read: "raise", or "skip" with a warning.
            `examples.source.failures` then has the row and the reason of each.
        mirror: whether training mirrors images at random.
    """
    folder = pathlib.Path(folder)
    groups = dict(sorted(_image_folders(folder)))
    if folder in groups:
        raise DataError(
            f"{groups[folder][0]}: expected images only in folders that name their class"
        )
    if not groups:
        raise DataError(f"{folder}: expected sub-folders with images, found none")
    for path in groups:
        mixed = next((above for above in path.parents if above in groups), None)
        if mixed is not None:
            raise DataError(
                f"{mixed}: holds images and, in {path.relative_to(mixed)}, more of them: expected "
                "all images of a class in one folder, which holds no other"
            )
    names = tuple(path.relative_to(folder).as_posix() for path in groups)
    nested = [name for name in names if "/" in name]
    if nested:
        logging.warning(
            "%s: %d of %d classes are folders within folders, such as %s: each is a class of its "
            "own. To make one class of them, move their images into one folder",
            *(folder, len(nested), len(names), nested[0]),
        )
    counts = [len(paths) for paths in groups.values()]
    return Examples(
        name=folder.name,
        shape=image_shape,
        source=ImageFiles(
            [path for paths in groups.values() for path in paths], image_shape, on_error
        ),
        rows=np.arange(sum(counts)),
        labels=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        class_names=names,
        augment=random_flip if mirror else None,
    )


def load_flat(
    folder: str | os.PathLike[str], image_shape: tuple[int, int, int], on_error: str = "raise"
) -> Examples:
    """Finds all images in a folder and below, without labels, in the order of their paths."""
    folder = pathlib.Path(folder)
    paths = sorted(path for _, found in _image_folders(folder) for path in found)
    if not paths:
        raise DataError(f"{folder}: expected images, found none")
    return unlabelled(folder.name, paths, image_shape, on_error)


def unlabelled(
    name: str, paths: Sequence[pathlib.Path], image_shape: tuple[int, int, int], on_error: str
) -> Examples:
    """Returns these images, in this order, without labels."""
    return Examples(
        name=name,
        shape=image_shape,
        source=ImageFiles(paths, image_shape, on_error),
        rows=np.arange(len(paths)),
        labels=np.full(len(paths), -1, np.int32),
        class_names=(),
    )


def kept_paths(examples: Examples) -> list[pathlib.Path]:
    """Returns the paths of all images but those skipped so far, in order.

    After a pass over `evaluation_batches`, these are the images that came out, one by one.
    """
    source = examples.source
    if not isinstance(source, ImageFiles):
        raise ValueError(f"{examples.name}: expected images stored one per file")
    return [source.paths[row] for row in examples.rows.tolist() if row not in source.failures]


def _image_folders(
    folder: pathlib.Path, above: tuple[str, ...] = ()
) -> Iterator[tuple[pathlib.Path, list[pathlib.Path]]]:
    """Yields each folder that holds images, at any depth, and its images in order.

    Links are followed, but not to a folder that they are in.
    """
    above = (*above, os.path.realpath(folder))
    images, folders = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                folders.append(entry.name)
            elif entry.name.lower().endswith(_SUFFIXES) and entry.is_file():
                images.append(entry.name)
    if images:
        yield folder, [folder / name for name in sorted(images)]
    for name in sorted(folders):
        if os.path.realpath(folder / name) not in above:
            yield from _image_folders(folder / name, above)
