"""Every data set by its name, behind one interface.

    data = load("image_folder", "photos", test=100)
    for images, labels in data.training_batches(data.parts["train"], batch_size=256, seed=0):
        ...

TensorFlow is imported when a data set is loaded, not before.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparse_embed.common.checks import check_choice

if TYPE_CHECKING:
    import tensorflow as tf

NAMES = ("glyphs", "cifar100", "recordio", "tfrecords", "image_folder", "dense_embeddings")


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set, split and ready to be drawn from.

    Attributes:
        name: one of `NAMES`.
        shape: of one example: (height, width, channels), or (dim,) of dense embeddings.
        parts: "train", "validation" and "test", as far as there are any, and the "distractors" of
            glyphs; each has its length and `num_classes`.
        training_batches: (part, batch_size, seed, start_step=0) -> endless batches.
        evaluation_batches: (part, batch_size) -> each example once, in order.
    """

    name: str
    shape: tuple[int, ...]
    parts: dict[str, Any]
    training_batches: Callable[..., "tf.data.Dataset"]
    evaluation_batches: Callable[..., "tf.data.Dataset"]


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    image_size: tuple[int, int] = (112, 112),
    validation: int = 0,
    test: int = 0,
    seed: int = 0,
    on_error: str = "raise",
    views: int = 1,
    largest_shift: int = 4,
) -> DataSet:
    """Loads a data set and splits it.

    Glyphs, record files, image folders and dense embeddings are split by class, so that testing is
    on classes never seen in training; CIFAR-100 has test images of its own.

    Args:
        name: one of `NAMES`.
        data_dir: where the files are: a folder; the archive or folder of CIFAR-100; the `.npz` of
            dense embeddings. Glyphs need none, and keep their cache there.
        image_size: (height, width) that the images of an image folder are scaled to.
        validation: number of validation classes; of CIFAR-100, validation images per class.
        test: number of test classes; of no meaning to CIFAR-100. Glyphs have 200 and 1,134 where
            both are 0. Shards are not split.
        seed: which classes (or images) go where.
        on_error: "raise" or "skip" at broken images of record files and image folders.
        views: how many times glyphs come in evaluation, each time warped anew.
        largest_shift: pixels by which training images of CIFAR-100 are shifted at most.
    """
    check_choice("name", name, NAMES)
    if name == "glyphs":
        return _glyphs(data_dir, validation, test, seed, views)
    if data_dir is None:
        raise ValueError(f"data_dir=None: {name} has to be told where the files are")
    if name == "tfrecords":
        return _shards(data_dir)

    from sparse_embed.datasets import cifar100, dense_embeddings, image_folder, recordio
    from sparse_embed.datasets.examples import evaluation_batches, split_by_class, training_batches

    if name == "cifar100":
        parts = cifar100.load(data_dir, validation, seed, largest_shift)
    else:
        if name == "recordio":
            examples = recordio.load(data_dir, on_error=on_error)
        elif name == "image_folder":
            examples = image_folder.load(data_dir, (*image_size, 3), on_error)
        else:
            examples = dense_embeddings.load(data_dir)
        parts = split_by_class(examples, validation, test, seed)
    return DataSet(name, parts.train.shape, _filled(parts), training_batches, evaluation_batches)


def _glyphs(
    data_dir: str | os.PathLike[str] | None, validation: int, test: int, seed: int, views: int
) -> DataSet:
    from sparse_embed.datasets import glyphs

    sizes = {"validation": validation, "test": test} if validation or test else {}
    parts = glyphs.split(glyphs.load(data_dir), seed, **sizes)
    return DataSet(
        "glyphs",
        (*parts.train.images.shape[1:], 1),
        _filled(parts),
        glyphs.training_batches,
        lambda part, batch_size: glyphs.evaluation_batches(part, views, batch_size, seed=1),
    )


def _shards(data_dir: str | os.PathLike[str]) -> DataSet:
    from sparse_embed.datasets import tfrecords

    shards = tfrecords.open_shards(data_dir)
    return DataSet(
        "tfrecords",
        shards.shape,
        {"train": shards},
        tfrecords.training_batches,
        tfrecords.evaluation_batches,
    )


def _filled(parts: Any) -> dict[str, Any]:
    return {name: part for name, part in parts._asdict().items() if len(part)}
