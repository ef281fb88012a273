"""The pictures of rows, by id."""

import io
import os
import pathlib
from typing import NamedTuple, Protocol

import numpy as np

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.serving.refusals import Refusal, unknown_id

_TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif", "BMP": "image/bmp"}


class Picture(NamedTuple):
    """An encoded image and its media type."""

    data: bytes
    media_type: str


class Pictures(Protocol):
    """The pictures of rows.

    Attributes:
        dark_paper: whether they show light ink on dark paper, which a drawn query should, too.
    """

    dark_paper: bool

    def __len__(self) -> int: ...

    def name(self, row: int) -> str:
        """Returns what to call a picture."""

    def read(self, row: int) -> Picture:
        """Returns a picture; Refusal if the row has none, or it is gone."""


class FolderPictures:
    """Images stored one per file; row i is image i."""

    dark_paper = False

    def __init__(self, folder: pathlib.Path, paths: list[pathlib.Path]):
        # Names need not be UTF-8 on the disk, but answers are.
        names = (os.fsencode(path.relative_to(folder).as_posix()) for path in paths)
        self._names = [name.decode("utf-8", "replace") for name in names]
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, row: int) -> str:
        """Returns the path in the folder."""
        return self._names[row] if 0 <= row < len(self) else ""

    def read(self, row: int) -> Picture:
        """Returns the file as it is, if it still is an image."""
        from sparse_embed.datasets.image_headers import read_header

        if not 0 <= row < len(self):
            raise unknown_id(row)
        try:
            data = self._paths[row].read_bytes()
            return Picture(data, _TYPES[read_header(data).format])
        except (OSError, ValueError) as error:
            raise Refusal(404, f"id {row}: its picture can no longer be read.") from error


class StoredPictures:
    """Grey images that `prepare_data` drew: encoders see light ink on dark paper."""

    dark_paper = True

    def __init__(self, images: np.ndarray):
        self._images = images

    @classmethod
    def open(cls, flag: str, path: pathlib.Path, rows: int) -> "StoredPictures":
        """Opens stored images; UsageError unless there is one for each of `rows`."""
        images = read_npy(path, mmap=True, expected="stored images")
        if images.ndim != 3 or images.dtype != np.uint8 or len(images) < rows:
            raise UsageError(
                f"--{flag}={path}: expected {rows} images or more, uint8 (n, height, width), got "
                f"{images.shape} of {images.dtype}"
            )
        return cls(images[:rows])

    def __len__(self) -> int:
        return len(self._images)

    def name(self, row: int) -> str:
        """Returns the number of the picture."""
        return f"picture {row}"

    def read(self, row: int) -> Picture:
        """Returns the image as a PNG that an encoder sees as it saw the stored one."""
        from PIL import Image

        from sparse_embed.datasets.evaluation_sets import grey

        if not 0 <= row < len(self):
            raise unknown_id(row)
        file = io.BytesIO()
        Image.fromarray(grey(self._images[row])).save(file, format="png")
        return Picture(file.getvalue(), "image/png")
