"""The evaluation sets of words and glyphs, in the roles of MegaFace, LFW and AgeDB-30 for faces.

- identification: probes from test classes, each the mate of the others of its class, and
  distractors from other classes: for words up to a million and more, each a class of its own, for
  glyphs any number. No encoder has seen either in training.
- verification: pairs of test images, an easy and a hard set.

The images are drawn and warped once and kept as bytes in a file that can be memory-mapped: a
million are a gigabyte, and every encoder embeds the very same ones.
"""

import dataclasses
import os
import pathlib

import numpy as np
import tensorflow as tf

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.checks import check_number
from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.progress import progress_bar
from sparse_embed.datasets import glyphs
from sparse_embed.datasets.augment import Warp
from sparse_embed.datasets.examples import Examples

# Training warps by up to 12 degrees, exp(0.15) and 2 pixels: one set stays within that, the other
# does not.
EASY = Warp(rotation=6, scale=0.08, shear=0.08, translation=1.0, blur=0.5, noise=0.05)
HARD = Warp(rotation=18, scale=0.22, shear=0.22, translation=3.0, blur=1.3, noise=0.15)

# A byte b is the value (b - 64) / 128: from -0.5 to 1.49, so that noise is not cut off.
_ZERO, _ONE = 64, 128


_DISTRACTOR_SEED = 1


def draw_all(
    folder: str | os.PathLike[str],
    parts: dict[str, Examples],
    distractors: int,
    probe_classes: int,
    pairs: int,
) -> dict[str, pathlib.Path]:
    """Draws the images of every evaluation set and writes them, each with its labels beside it.

    Args:
        folder: made if need be; existing files are overwritten.
        parts: those of `words` or `glyphs`.
        distractors: number of distractors for identification, labelled -1.
        probe_classes: number of test classes to take probes from.
        pairs: number of pairs in each verification set.

    Returns:
        The files of "identification", "easy" and "hard", as `store` writes them. Their labels are
        in `<name>.labels.npy`.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}

    def keep(name: str, size: str, streams: list[tf.data.Dataset], labels: np.ndarray) -> None:
        files[name] = folder / f"{name}_{size}.npy"
        # The images come last: where they exist, their labels do too.
        with atomic_path(files[name].with_suffix(".labels.npy")) as temporary:
            np.save(temporary, labels)
        store(files[name], streams, len(labels))

    probes, others = identification_parts(parts, probe_classes)
    if not others.num_classes:
        check_number("distractors", distractors, integer=True, minimum=1, maximum=len(others))
    labels = np.concatenate([probes.labels, np.full(distractors, -1, np.int32)])
    streams = [views(probes), others.stream(distractors, 512, _DISTRACTOR_SEED)]
    keep("identification", f"{probe_classes}_{distractors}", streams, labels)
    for name, warp in (("easy", EASY), ("hard", HARD)):
        images, _ = verification_pairs(parts["test"], pairs, other_typeface=name == "hard")
        keep(name, str(pairs), [views(images, warp)], images.labels)
    return files


def identification_parts(
    parts: dict[str, Examples], classes: int, seed: int = 0
) -> tuple[Examples, Examples]:
    """Divides the parts that no encoder was trained or chosen on: (probes, distractors).

    The probes are the images of `classes` test classes, mates of the others of their class. The
    distractors of words are those of the part of that name. Glyphs have fewer: theirs are made of
    all other test classes too.

    Args:
        parts: as `words.split` or `glyphs.split` returns them.
        classes: number of probe classes.
        seed: decides which ones.
    """
    test, more = parts["test"], parts["distractors"]
    check_number("classes", classes, integer=True, minimum=1, maximum=test.num_classes - 1)
    random = np.random.Generator(np.random.PCG64(seed))
    chosen = random.choice(test.num_classes, classes, replace=False)
    if not more.num_classes:
        return test.select(chosen), more
    rest = test.select(np.setdiff1d(np.arange(test.num_classes), chosen))
    distractors = dataclasses.replace(
        rest,
        rows=np.concatenate([rest.rows, more.rows]),
        labels=np.concatenate([rest.labels, more.labels + rest.num_classes]),
        class_names=rest.class_names + more.class_names,
    )
    return test.select(chosen), distractors


def verification_pairs(
    test: Examples, pairs: int = 6000, other_typeface: bool = True, seed: int = 0
) -> tuple[Examples, np.ndarray]:
    """Draws pairs of images; every second pair is from one class, the others from two.

    Args:
        test: the images to draw from; all classes are drawn equally often.
        pairs: number of pairs.
        other_typeface: whether the images of a same-class pair come from two typefaces and differ;
            if not, they may be one image, warped twice.
        seed: of the draw.

    Returns:
        The images, 2i and 2i + 1 being pair i; (pairs,) bool, whether pair i is from one class.
    """
    check_number("pairs", pairs, integer=True, minimum=1)
    random = np.random.Generator(np.random.PCG64(seed))
    starts = np.searchsorted(test.labels, np.arange(test.num_classes + 1))
    chosen = np.empty((pairs, 2), np.int64)
    same = np.arange(pairs) % 2 == 0
    left = np.arange(pairs)
    while len(left):
        labels = random.integers(test.num_classes, size=(len(left), 2))
        labels[:, 1] = (labels[:, 0] + 1 + labels[:, 1] % (test.num_classes - 1)) % test.num_classes
        labels[same[left], 1] = labels[same[left], 0]
        chosen[left] = random.integers(starts[labels], starts[labels + 1])
        if not other_typeface:
            break
        one, other = (_drawn(test, chosen[left, side]) for side in (0, 1))
        left = left[same[left] & (one == other).all(axis=(1, 2, 3))]
    return test.take(chosen.ravel()), same


def _drawn(images: Examples, positions: np.ndarray) -> np.ndarray:
    """Returns some images as the typefaces draw them, (n, size, size, 1) uint8."""
    return np.asarray(images.source.compose(images.rows[positions]))  # type: ignore[attr-defined]


def store(path: str | os.PathLike[str], parts: list[tf.data.Dataset], count: int) -> None:
    """Writes the images of finite streams, one after the other, to an `.npy` file of bytes.

    Args:
        path: the file; it appears when it is whole.
        parts: batches of (images, labels), as from `views` or `Examples.stream`.
        count: images in all; another number is an error.
    """
    done = 0
    # Not by a memory map: a full disk would end the process.
    with (
        atomic_path(path) as temporary,
        open(temporary, "wb") as file,
        progress_bar(total=count, desc=pathlib.Path(path).name, unit=" images") as progress,
    ):
        for images in (images for part in parts for images, _ in part):
            coded = tf.clip_by_value(tf.round(images[..., 0] * _ONE) + _ZERO, 0, 255)
            if done == 0:
                header = {"descr": "|u1", "fortran_order": False}
                header["shape"] = (count, *coded.shape[1:])
                np.lib.format.write_array_header_1_0(file, header)
            done += len(coded)
            if done > count:
                raise ValueError(f"count={count}: the streams have more images")
            file.write(tf.cast(coded, tf.uint8).numpy().tobytes())
            progress.update(len(coded))
        if done < count:
            raise ValueError(f"count={count}: the streams have {done} images")


def grey(stored: np.ndarray) -> np.ndarray:
    """Returns stored images with 0 to 255 for the values 0 to 1; noise beyond them is cut off."""
    values = (stored.astype(np.int32) - _ZERO) * 255 // _ONE
    return np.clip(values, 0, 255).astype(np.uint8)


def stored_batches(
    path: str | os.PathLike[str],
    labels: np.ndarray,
    batch_size: int,
    count: int | None = None,
) -> tf.data.Dataset:
    """The images of a file that `store` wrote, in order, as encoders take them.

    Args:
        path: the file.
        labels: of all its images.
        batch_size: images per batch.
        count: how many of the images to take, the first ones; None for all.

    Returns:
        (images, labels): (batch, size, size, 1) float32; the last batch may be smaller.
    """
    check_number("batch_size", batch_size, integer=True, minimum=1)
    images = read_npy(path, mmap=True, expected="stored images")
    if images.ndim != 3 or images.dtype != np.uint8 or not images.size:
        raise DataError(f"{path}: {images.dtype} of {images.shape}: expected uint8 images")
    if not images.flags.c_contiguous:
        raise DataError(f"{path}: expected images one after the other, not in Fortran's order")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}: labels of shape {labels.shape} of {labels.dtype}: expected an integer for "
            f"each of the {len(images)} images"
        )

    # In the graph, by the file's layout. `Dataset.from_generator` would make TensorFlow tune malloc
    # for it, after which every large tensor costs fresh pages: encoders are a third as fast.
    header = images.offset  # type: ignore[attr-defined]
    records = tf.data.FixedLengthRecordDataset(str(path), images[0].nbytes, header_bytes=header)
    shape = (-1, *images.shape[1:], 1)

    def decode(coded: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels = tf.reshape(tf.io.decode_raw(coded, tf.uint8), shape)
        return (tf.cast(pixels, tf.float32) - _ZERO) / _ONE, labels

    total = min(len(images), len(images) if count is None else count)
    named = tf.data.Dataset.from_tensor_slices(labels[:total])
    dataset = tf.data.Dataset.zip(
        records.take(total).batch(batch_size), named.batch(batch_size)
    ).map(decode)
    cardinality = tf.data.experimental.assert_cardinality(-(-total // batch_size))
    return dataset.apply(cardinality).prefetch(2)


def views(images: Examples, warp: Warp | None = None, seed: int = 2) -> tf.data.Dataset:
    """Each image once, in order, warped by `warp`, or by `Warp()` if None."""
    warped = dataclasses.replace(images, view=glyphs.warping(warp))
    return warped.evaluation_batches(batch_size=512, seed=seed)
