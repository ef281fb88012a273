"""Verification packs (`lfw.bin`, `agedb_30.bin`, `cfp_fp.bin`): pairs of faces, same or not.

A pack is the pickle of `(images, issame)`: images 2i and 2i + 1 are pair i, and `issame[i]` says
whether they show one person. An image is JPEG bytes, or a uint8 array of pixels or of JPEG bytes.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sparse_embed.common.failures import DataError
from sparse_embed.datasets import restricted_pickle
from sparse_embed.datasets.encoded_images import EncodedImages
from sparse_embed.datasets.examples import Examples


class Pack(NamedTuple):
    """The pairs of a pack.

    Attributes:
        images: rows 2i and 2i + 1 are pair i.
        same: (pairs,) bool.
    """

    images: Examples
    same: np.ndarray


def load(path: str | os.PathLike[str], image_shape: tuple[int, int, int] = (112, 112, 3)) -> Pack:
    """Reads a pack without running what its pickle says; broken images raise when they are read.

    Raises:
        DataError: if the file is not a pack; a `RestrictedPickleError` if it holds more than that.
    """
    path = pathlib.Path(path)
    value = restricted_pickle.loads(path.read_bytes(), str(path))
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise DataError(f"{path}: expected (images, issame), got {type(value).__name__}")
    entries, same = (
        _items(part, path, name) for part, name in zip(value, ("images", "issame"), strict=True)
    )
    if len(entries) != 2 * len(same):
        raise DataError(
            f"{path}: {len(entries)} images, expected two for each of {len(same)} pairs"
        )
    if not all(isinstance(item, bool | np.bool_ | int) and item in (0, 1) for item in same):
        raise DataError(f"{path}: expected issame to hold only True and False")
    count = len(entries)
    images = Examples(
        name=path.stem,
        shape=image_shape,
        source=_PackImages(path, entries, image_shape),
        rows=np.arange(count),
        labels=np.full(count, -1, np.int32),
        class_names=(),
    )
    return Pack(images, np.array(same, bool))


class _PackImages(EncodedImages):
    def __init__(
        self, path: pathlib.Path, entries: Sequence[Any], image_shape: tuple[int, int, int]
    ) -> None:
        super().__init__(image_shape, on_error="raise", resize=False)
        self._path, self._entries = path, entries

    def read(self, row: int) -> bytes:
        entry = self._entries[row]
        if isinstance(entry, np.ndarray) and entry.dtype == np.uint8:
            if entry.ndim == 1:
                entry = entry.tobytes()
            elif entry.ndim == 3 and entry.shape[2] in (1, 3) and entry.size:
                encoded: bytes = tf.io.encode_png(entry, compression=0).numpy()  # lossless
                return encoded
        if not isinstance(entry, bytes | bytearray) or not entry:
            what = f"shape {entry.shape}" if isinstance(entry, np.ndarray) else f"{type(entry)}"
            raise DataError(f"{self.describe(row)}: expected JPEG bytes or pixels, got {what}")
        return bytes(entry)

    def describe(self, row: int) -> str:
        return f"{self._path}: image {row}"

    @property
    def files(self) -> list[pathlib.Path]:
        return [self._path]


def _items(part: Any, path: pathlib.Path, name: str) -> list[Any]:
    if isinstance(part, list | tuple) or (isinstance(part, np.ndarray) and part.ndim):
        return list(part)
    raise DataError(f"{path}: expected {name} to be a list, got {type(part).__name__}")
