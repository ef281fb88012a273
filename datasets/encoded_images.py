"""Images that stay on disk, encoded, until a batch needs them.

Python reads files, and looks at the headers of images, a batch at a time; decoding and resizing are
in the graph. An image that cannot be read or decoded is either refused or skipped, in both cases by
name.
"""

import functools
import os
import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from sparse_embed.common.checks import check_choice
from sparse_embed.common.failures import DataError
from sparse_embed.datasets.examples import Source, normalise
from sparse_embed.datasets.image_headers import check_header


class EncodedImages(Source):
    """A source of encoded images; one kind of storage is one subclass.

    Args:
        image_shape: (height, width, channels), 1 channel for grey and 3 for colour.
        on_error: "raise" to stop at a broken image, "skip" to go on without it.
        resize: whether an image of another size is scaled and cropped; if not, it counts as broken.

    Attributes:
        image_shape: (height, width, channels) of every image that comes out.
        on_error: as given.
        resize: as given.
        failures: row -> reason, for every image skipped so far.
    """

    def __init__(self, image_shape: tuple[int, int, int], on_error: str, resize: bool):
        if len(image_shape) != 3 or image_shape[2] not in (1, 3) or min(image_shape) < 1:
            raise ValueError(
                f"image_shape={image_shape!r}: expected (height, width, 1) or (height, width, 3)"
            )
        self.image_shape = image_shape
        self.failures: dict[int, str] = {}
        self.on_error = check_choice("on_error", on_error, ["raise", "skip"])
        self.resize = resize
        self._lock = threading.Lock()

    @abstractmethod
    def read(self, row: int) -> bytes:
        """Returns the encoded image, or raises ValueError or OSError saying where and why.

        Called from several threads at once.
        """

    @abstractmethod
    def describe(self, row: int) -> str:
        """Returns how errors name the image."""

    @property
    @abstractmethod
    def files(self) -> Sequence[str | os.PathLike[str]]:
        """The files that images are read from."""

    @property
    def size(self) -> tuple[int, int] | None:
        """The (height, width) that images must have; None if they are scaled."""
        return None if self.resize else self.image_shape[:2]

    def check_header(self, row: int) -> None:
        """Raises ValueError or OSError unless the image can be read and its header allows it."""
        self._read_checked(row)

    def decode(self, data: tf.Tensor) -> tf.Tensor:
        """Decodes one image; see `decode_image`."""
        return decode_image(data, self.image_shape, self.resize)

    def check(self, row: int) -> bytes:
        """Returns the encoded image if it decodes, else raises ValueError naming it."""
        data = self._read_checked(row)
        try:
            self.decode(tf.constant(data))
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            reason = _reason(error)
            raise ValueError(f"{self.describe(row)}: cannot be decoded: {reason}") from error
        return data

    def check_or_report(self, row: int) -> bytes | None:
        """Returns the encoded image, or reports it: raises, or returns None if it is skipped."""
        try:
            return self.check(row)
        except (ValueError, OSError) as error:
            self.report(row, str(error))
            return None

    def report(self, row: int, reason: str) -> None:
        """Reports a broken image: raises DataError, or logs that it is skipped."""
        if self.on_error == "raise":
            raise DataError(reason)
        with self._lock:
            if row not in self.failures:
                self.failures[row] = reason
                logging.warning("skipped image %d: %s", len(self.failures), reason)

    def load(self, rows: tf.data.Dataset, total: int) -> tf.data.Dataset:
        """Reads and decodes batches of rows; see `examples.Source`."""
        missing: set[int] = set()  # rows of this pipeline that failed

        def read_all(chosen: np.ndarray) -> np.ndarray:
            return np.array([self._read_or_nothing(row) for row in chosen.tolist()], object)

        def report(failed: np.ndarray) -> np.bool_:
            for row in failed.tolist():
                missing.add(row)
                if row not in self.failures and self.check_or_report(row) is not None:
                    self.report(row, f"{self.describe(row)}: could not be read at first")
            if len(missing) == total:
                raise DataError(f"{self.failures[failed[0]]} (all {total} images fail)")
            return np.True_

        def fetch(chosen: tf.Tensor, labels: tf.Tensor) -> Any:
            encoded = tf.numpy_function(read_all, [chosen], tf.string)
            encoded.set_shape(chosen.shape)
            images, good = self._decode_all(encoded)

            def drop() -> tuple[tf.Tensor, tf.Tensor]:
                failed = tf.boolean_mask(chosen, ~good)
                with tf.control_dependencies([tf.numpy_function(report, [failed], tf.bool)]):
                    return tf.boolean_mask(images, good), tf.boolean_mask(labels, good)

            return tf.cond(tf.reduce_all(good), lambda: (images, labels), drop)

        return rows.map(fetch, num_parallel_calls=tf.data.AUTOTUNE)

    def _decode_all(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Decodes a batch; returns the images and which of them are good.

        A graph has no `try`, but a data set can ignore errors and go on with what is concatenated
        to it. The whole batch is tried first, since most images are good, then each image.
        """
        blank = tf.zeros(self.image_shape, tf.uint8)
        signature = tf.TensorSpec(self.image_shape, tf.uint8)

        def whole(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            images = tf.map_fn(self.decode, batch, fn_output_signature=signature)
            return images, tf.fill(tf.shape(batch), True)

        def one(data: tf.Tensor) -> Any:
            element = tf.data.Dataset.from_tensors(data)
            decoded = element.map(lambda image: (self.decode(image), True)).ignore_errors()
            either = decoded.concatenate(element.map(lambda _: (blank, False)))
            return either.take(1).get_single_element()

        def each(batch: tf.Tensor) -> Any:
            kinds = (signature, tf.TensorSpec((), tf.bool))
            return tf.map_fn(one, batch, fn_output_signature=kinds)

        batch = tf.data.Dataset.from_tensors(encoded)
        tries = batch.map(whole).ignore_errors().concatenate(batch.map(each))
        images, good = tries.take(1).get_single_element()
        return images, good

    def _read_checked(self, row: int) -> bytes:
        """Returns the encoded image if its header says that it may be decoded."""
        data = self.read(row)
        try:
            check_header(data, self.size)
        except ValueError as error:
            raise ValueError(f"{self.describe(row)}: cannot be decoded: {error}") from error
        return data

    def _read_or_nothing(self, row: int) -> bytes:
        """Returns the encoded image; if it cannot be, or failed before, what does not decode."""
        if row in self.failures:
            return b""
        try:
            return self._read_checked(row)
        except (ValueError, OSError):
            return b""


def decode_image(data: tf.Tensor, image_shape: tuple[int, int, int], resize: bool) -> tf.Tensor:
    """Decodes one JPEG, PNG, GIF (its first frame) or BMP to uint8 of `image_shape`.

    JPEG has the pixels that libjpeg gives by default, as in MXNet, OpenCV and PIL: TensorFlow's own
    default is a faster, less accurate inverse DCT. An image of another size is scaled and cropped
    if `resize`; otherwise it fails like a broken one. Give only data that `check_header` passed:
    nothing here limits the memory.
    """
    height, width, channels = image_shape
    image = tf.cond(
        tf.io.is_jpeg(data),
        lambda: tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE"),
        lambda: _decode_other(data, channels),
    )
    if resize:
        fits = tf.reduce_all(tf.shape(image)[:2] == (height, width))
        image = tf.cond(fits, lambda: image, lambda: _cover(image, height, width))
    return tf.ensure_shape(image, image_shape)


def decode_query(data: bytes, image_shape: tuple[int, int, int]) -> np.ndarray:
    """Decodes one image as encoders take it: float32 of `image_shape`, from 0 to 1.

    Raises:
        ValueError: it has no header that allows it, or is damaged; says why.
    """
    check_header(data)
    try:
        image: np.ndarray = _query_decoder(image_shape)(tf.constant(data)).numpy()
        return image
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise ValueError(f"it cannot be decoded: {_reason(error)}") from error


@functools.cache
def _query_decoder(image_shape: tuple[int, int, int]) -> tf.types.experimental.PolymorphicFunction:
    """Returns bytes -> image as one graph, which is faster than operation by operation."""
    return tf.function(
        lambda data: normalise(decode_image(data, image_shape, resize=True)),
        input_signature=[tf.TensorSpec((), tf.string)],
    )


def _reason(error: Exception) -> str:
    """Returns what TensorFlow says of an image, without where in its graph."""
    return str(error).split("\n")[0].split("[Op:")[0].split("}} ")[-1].strip()


def _decode_other(data: tf.Tensor, channels: int) -> tf.Tensor:
    """Decodes a PNG, GIF or BMP; of these TensorFlow converts only PNG to grey or colour."""

    def decode(channels: int) -> tf.Tensor:
        return tf.io.decode_image(data, channels=channels, expand_animations=False)

    def convert() -> tf.Tensor:
        image = decode(0)[..., :3]  # without alpha
        is_grey = tf.shape(image)[-1] == 1
        if channels == 1:
            return tf.cond(is_grey, lambda: image, lambda: tf.image.rgb_to_grayscale(image))
        return tf.cond(is_grey, lambda: tf.image.grayscale_to_rgb(image), lambda: image)

    is_png = tf.strings.substr(data, 0, 4) == b"\x89PNG"
    return tf.cond(is_png, lambda: decode(channels), convert)


_LONGEST = 16  # times what it covers that an image may be long when it is scaled


def _cover(image: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """Scales an image of any size until it covers (height, width), and cuts out the centre."""
    target = tf.constant([height, width], tf.int32)
    whole = tf.shape(image)[:2]
    scale = tf.reduce_max(tf.cast(target, tf.float32) / tf.cast(whole, tf.float32))
    # A long thin image would take gigabytes once it is scaled: its ends, far from what is cut out,
    # go first.
    most = tf.cast(tf.math.ceil(_LONGEST * tf.cast(target, tf.float32) / scale), tf.int32)
    kept = tf.minimum(whole, most)
    top, left = tf.unstack((whole - kept) // 2)
    image = image[top : top + kept[0], left : left + kept[1]]
    size = tf.cast(kept, tf.float32)
    scaled = tf.maximum(tf.cast(tf.round(size * scale), tf.int32), target)
    image = tf.image.resize(image, scaled, antialias=True)
    top, left = tf.unstack((scaled - target) // 2)
    image = image[top : top + height, left : left + width]
    return tf.cast(tf.clip_by_value(tf.round(image), 0.0, 255.0), tf.uint8)
