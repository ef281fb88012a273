"""CIFAR-100 in its official pickle layout, from a folder or straight from the archive.

60,000 colour images of 32x32 in 100 classes, each with 500 for training and 100 for testing
(appendix "Cifar-100 results" of the paper). Training images are shifted and mirrored at random.
Parts share their classes: the paper searches for test images among training images.
"""

import dataclasses
import functools
import os
import pathlib
import tarfile
from typing import Any

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.datasets import restricted_pickle
from sparse_embed.datasets.examples import ArraySource, Examples, Parts, hold_out
from sparse_embed.datasets.shift_flip import random_shift_flip

_SHAPE = (32, 32, 3)
_FILES = ("train", "test", "meta")


def load(
    path: str | os.PathLike[str],
    validation_per_class: int = 0,
    seed: int = 0,
    largest_shift: int = 4,
) -> Parts:
    """Reads the data set.

    Args:
        path: the folder that holds `train`, `test` and `meta`, or the archive of that folder
            (`cifar-100-python.tar.gz`, or with another compression).
        validation_per_class: how many training images of each class are held out for validation.
        seed: which ones.
        largest_shift: largest shift of training images along each axis, in pixels.
    """
    check_number("largest_shift", largest_shift, integer=True, minimum=0)
    path = pathlib.Path(path)
    contents = _read_folder(path) if path.is_dir() else _read_archive(path)
    values = {}
    for name in _FILES:
        source = f"{path}:{name}"
        values[name] = restricted_pickle.loads(contents.pop(name), source)
        if not isinstance(values[name], dict):
            raise ValueError(f"{source}: expected a dict, got {type(values[name]).__name__}")
    names = tuple(name.decode() for name in values["meta"].get(b"fine_label_names", ()))
    if len(names) != 100:
        raise ValueError(f"{path}:meta: expected 100 fine_label_names, got {len(names)}")
    train, test = (
        _examples(values.pop(part), f"{path}:{part}", part, names) for part in ("train", "test")
    )
    train = dataclasses.replace(
        train, augment=functools.partial(random_shift_flip, largest=largest_shift)
    )
    train, validation = hold_out(train, validation_per_class, seed)
    return Parts(train, validation, test)


def _read_folder(path: pathlib.Path) -> dict[str, bytes]:
    absent = [name for name in _FILES if not (path / name).is_file()]
    if absent:
        raise ValueError(f"{path}: expected the files {', '.join(_FILES)}, {absent[0]} is missing")
    return {name: (path / name).read_bytes() for name in _FILES}


def _read_archive(path: pathlib.Path) -> dict[str, bytes]:
    contents = {}
    try:
        with tarfile.open(path, "r|*") as archive:  # as a stream: decompressed once
            for member in archive:
                name = pathlib.PurePosixPath(member.name).name
                file = archive.extractfile(member) if name in _FILES else None
                if file is not None:
                    contents[name] = file.read()
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path}: expected a folder or a tar archive: {error}") from error
    absent = [name for name in _FILES if name not in contents]
    if absent:
        raise ValueError(f"{path}: {absent[0]} is not in the archive")
    return contents


def _examples(content: dict[Any, Any], source: str, part: str, names: tuple[str, ...]) -> Examples:
    data, labels = content.get(b"data"), content.get(b"fine_labels")
    pixels = int(np.prod(_SHAPE))
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != pixels:
        raise ValueError(f"{source}: expected `data` to be a uint8 array of (n, {pixels})")
    if not isinstance(labels, list) or len(labels) != len(data):
        raise ValueError(f"{source}: expected `fine_labels` to be a list of {len(data)}")
    if not all(type(label) is int and 0 <= label < len(names) for label in labels):
        raise ValueError(f"{source}: expected labels from 0 to {len(names) - 1}")
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
