"""CIFAR-100 in its official pickle layout, from a folder or straight from the archive.

60,000 colour images of 32x32 in 100 classes, each with 500 for training and 100 for testing
(appendix "Cifar-100 results" of the paper). Training images are shifted and mirrored at random.
Parts share their classes: the paper searches for test images among training images.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.common.failures import DataError
from sparse_embed.common.reading import reading
from sparse_embed.datasets import bounded_tar, restricted_pickle
from sparse_embed.datasets.examples import ArraySource, Examples, Parts, hold_out
from sparse_embed.datasets.shift_flip import random_shift_flip

_SHAPE = (32, 32, 3)
# The most that each file honestly holds. An image is 3,072 bytes of pixels and 33 of labels and
# file name, in four opcodes of the pickle; some pickles write each byte from 128 on as two.
_PER_IMAGE = 2 * (3072 + 256)
_MOST_BYTES = {"train": 50_000 * _PER_IMAGE, "test": 10_000 * _PER_IMAGE, "meta": 1 << 20}
_MOST_OPCODES = {"train": 1_000_000, "test": 200_000, "meta": 10_000}
_MOST_UNPACKED = sum(_MOST_BYTES.values()) + (64 << 20)  # of the archive, other members included


def load(
    path: str | os.PathLike[str],
    validation_per_class: int = 0,
    seed: int = 0,
    largest_shift: int = 4,
    mirror: bool = True,
) -> Parts:
    """Reads the data set.

    Args:
        path: the folder that holds `train`, `test` and `meta`, or the archive of that folder
            (`.tar.gz`, `.tar.xz`, `.tar.bz2` or `.tar`).
        validation_per_class: how many training images of each class are held out for validation.
        seed: which ones.
        largest_shift: largest shift of training images along each axis, in pixels.
        mirror: whether training images are mirrored at random.
    """
    check_number("largest_shift", largest_shift, integer=True, minimum=0)
    path = pathlib.Path(path)
    contents = (
        _read_folder(path)
        if path.is_dir()
        else bounded_tar.read_members(path, _MOST_BYTES, _MOST_UNPACKED)
    )
    values = {}
    for name, most in _MOST_OPCODES.items():
        source = f"{path}:{name}"
        values[name] = restricted_pickle.loads(contents.pop(name), source, most)
        if not isinstance(values[name], dict):
            raise DataError(f"{source}: expected a dict, got {type(values[name]).__name__}")
    names = _names(values["meta"].get(b"fine_label_names"), f"{path}:meta")
    train, test = (
        _examples(values.pop(part), f"{path}:{part}", part, names) for part in ("train", "test")
    )
    train = dataclasses.replace(
        train,
        augment=functools.partial(random_shift_flip, largest=largest_shift, mirror=mirror),
    )
    train, validation = hold_out(train, validation_per_class, seed)
    return Parts(train, validation, test)


def _read_folder(path: pathlib.Path) -> dict[str, bytes]:
    absent = [name for name in _MOST_BYTES if not (path / name).is_file()]
    if absent:
        files = ", ".join(_MOST_BYTES)
        raise DataError(f"{path}: expected the files {files}, {absent[0]} is missing")
    for name, most in _MOST_BYTES.items():
        size = (path / name).stat().st_size
        if size > most:
            raise DataError(f"{path / name}: {size:,} bytes: expected at most {most:,}")
    return {name: (path / name).read_bytes() for name in _MOST_BYTES}


def _names(found: Any, source: str) -> tuple[str, ...]:
    """Returns the names of the classes."""
    if not isinstance(found, list) or not all(isinstance(name, bytes) for name in found):
        raise DataError(f"{source}: expected `fine_label_names` to be a list of bytes")
    if len(found) != 100:
        raise DataError(f"{source}: expected 100 fine_label_names, got {len(found)}")
    with reading(source, "fine_label_names in UTF-8"):
        return tuple(name.decode() for name in found)


def _examples(content: dict[Any, Any], source: str, part: str, names: tuple[str, ...]) -> Examples:
    data, labels = content.get(b"data"), content.get(b"fine_labels")
    pixels = int(np.prod(_SHAPE))
    if (
        not isinstance(data, np.ndarray)
        or data.ndim != 2
        or data.shape[1] != pixels
        or data.dtype != np.uint8
        or not len(data)
    ):
        raise DataError(f"{source}: expected `data` to be a uint8 array of (n, {pixels})")
    if not isinstance(labels, list) or len(labels) != len(data):
        raise DataError(f"{source}: expected `fine_labels` to be a list of {len(data)}")
    if not all(type(label) is int and 0 <= label < len(names) for label in labels):
        raise DataError(f"{source}: expected labels from 0 to {len(names) - 1}")
    height, width, channels = _SHAPE
    images = data.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
    return Examples(
        name=f"cifar100 {part}",
        shape=_SHAPE,
        source=ArraySource(images),
        rows=np.arange(len(images)),
        labels=np.array(labels, np.int32),
        class_names=names,
    )
