"""Encoded images, alone and in a batch beside a good one."""

import functools
import pathlib
import queue
from typing import Any

import tensorflow as tf
from absl import logging
from fuzz import pictures
from fuzz.mutations import Parts

from sparse_embed.datasets.encoded_images import EncodedImages

TOKENS = pictures.TOKENS
_SHAPES = (
    ((pictures.SIZE, pictures.SIZE, 3), False),
    ((pictures.SIZE, pictures.SIZE, 1), True),
    ((5, 11, 3), True),
)


def seeds() -> list[Parts]:
    """One image of each kind, grey and colour."""
    made = [{"image": pictures.encoded(kind)} for kind in ("JPEG", "PNG", "GIF", "BMP")]
    made += [{"image": pictures.encoded(kind, 1, True)} for kind in ("JPEG", "PNG", "GIF", "BMP")]
    return [*made, pictures.png_pieces()]


class Pair(EncodedImages):
    """Two images: a good one, and the one under test."""

    def __init__(self, shape: tuple[int, int, int], resize: bool):
        super().__init__(shape, "skip", resize)
        self.image = self._good = pictures.encoded("PNG", 5)

    def read(self, row: int) -> bytes:
        """Returns the good one for row 0."""
        return self.image if row else self._good

    def describe(self, row: int) -> str:
        """Returns the name of the image."""
        return f"image {row}"

    @property
    def files(self) -> list[str]:
        """None: both images are in memory."""
        return []


@functools.cache
def _pipelines() -> list[tuple[Pair, queue.SimpleQueue, Any]]:
    """Per shape: the source, a queue that asks for a batch, and the batches that come.

    A pipeline takes long to start, so it goes on from case to case.
    """
    logging.set_verbosity(logging.ERROR)  # each skipped image is a warning
    made = []
    signature = (tf.TensorSpec((2,), tf.int64), tf.TensorSpec((2,), tf.int32))
    for shape, resize in _SHAPES:
        asked: queue.SimpleQueue = queue.SimpleQueue()
        rows = tf.data.Dataset.from_generator(
            lambda asked=asked: iter(asked.get, None), output_signature=signature
        )
        pair = Pair(shape, resize)
        # A total that is never reached: all that come being broken is not what is tested here.
        made.append((pair, asked, iter(pair.load(rows, total=3))))
    return made


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """An image is refused by name; in a batch it is skipped, and the good one comes out."""
    data = pictures.joined(parts)
    refused = None
    for pair, asked, batches in _pipelines():
        pair.image = data
        pair.failures.clear()
        try:
            pair.check(1)
            wanted = [0, 1]
        except ValueError as error:
            refused = error
            wanted = [0]
            assert str(error).startswith("image 1: "), error
        asked.put(([0, 1], [0, 1]))
        images, labels = next(batches)
        found = labels.numpy().tolist()
        assert found == wanted, f"alone: {wanted}, in a batch: {found}"
        assert images.shape == (len(wanted), *pair.image_shape)
        assert images.dtype == tf.uint8
    if refused:
        raise refused
