"""What every data set read from files has in common: labelled examples and their batches.

A data set's module loads `Examples`; these are split by class or by image, and become batches:

    part = split_by_class(image_folder.load("photos", (112, 112, 3)), test=100)
    for images, labels in training_batches(part.train, batch_size=256, seed=0):
        ...

Images are normalised in one way, `pixel / 255`: float32 from 0 (black) to 1 (white).
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from sparse_embed.common.checks import check_number

Augmentation = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

# (positions of an endless stream, number of examples, seed) -> which example is there.
Pick = Callable[[tf.Tensor, int, int], tf.Tensor]


class Source(Protocol):
    """Where examples come from: an array in memory, or encoded images read when needed."""

    def load(self, rows: tf.data.Dataset, total: int) -> tf.data.Dataset:
        """Turns batches of (row numbers, labels) into batches of (examples, labels).

        A batch may come out smaller than it went in, where the source skips what is broken.

        Args:
            rows: batches of ((batch,) int64, (batch,) int32).
            total: number of different rows that will come.
        """


class ArraySource:
    """Examples that are the rows of one array in memory."""

    def __init__(self, array: np.ndarray):
        self._array = tf.constant(array)

    def load(self, rows: tf.data.Dataset, total: int) -> tf.data.Dataset:
        """Gathers the rows."""
        del total
        return rows.map(
            lambda chosen, labels: (tf.gather(self._array, chosen), labels),
            num_parallel_calls=tf.data.AUTOTUNE,
        )


@dataclasses.dataclass(frozen=True)
class Examples:
    """Labelled examples: which rows of a source, and the class of each.

    Attributes:
        name: of the data set.
        shape: of one example: (height, width, channels) of an image, (dim,) of an embedding.
        source: where the examples come from.
        rows: (n,) int64, the rows of the source.
        labels: (n,) int32 in [0, num_classes); -1 throughout, and no classes, if unlabelled.
        class_names: name of each label.
        augment: what training does to a batch of images, if anything.
    """

    name: str
    shape: tuple[int, ...]
    source: Source
    rows: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    augment: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return len(self.class_names)

    def take(self, positions: np.ndarray) -> "Examples":
        """Returns the examples at the given positions (or where a mask is true) alone."""
        return dataclasses.replace(self, rows=self.rows[positions], labels=self.labels[positions])

    def select(self, classes: np.ndarray) -> "Examples":
        """Returns the examples of the given labels alone, re-numbered from 0 in ascending order."""
        classes = np.unique(classes)
        part = self.take(np.isin(self.labels, classes))
        return dataclasses.replace(
            part,
            labels=np.searchsorted(classes, part.labels).astype(np.int32),
            class_names=tuple(self.class_names[label] for label in classes),
        )


class Parts(NamedTuple):
    """A data set in its three parts."""

    train: Examples
    validation: Examples
    test: Examples


def split_by_class(examples: Examples, validation: int = 0, test: int = 0, seed: int = 0) -> Parts:
    """Splits by class: no class is in two parts, and labels start at 0 in each.

    Args:
        examples: what to split.
        validation: number of validation classes.
        test: number of test classes; training gets all that are left.
        seed: which classes go where.
    """
    check_number("validation", validation, integer=True, minimum=0)
    check_number("test", test, integer=True, minimum=0)
    train = examples.num_classes - validation - test
    if train < 1:
        raise ValueError(
            f"validation={validation}, test={test}: expected fewer classes in all than the "
            f"{examples.num_classes} of {examples.name}"
        )
    shuffled = _generator(seed).permutation(examples.num_classes)
    groups = np.split(shuffled, [train, train + validation])
    return Parts(*(examples.select(classes) for classes in groups))


def hold_out(examples: Examples, per_class: int, seed: int = 0) -> tuple[Examples, Examples]:
    """Splits by example: (all but `per_class` examples of each class, those `per_class`)."""
    smallest = int(np.bincount(examples.labels, minlength=examples.num_classes).min())
    check_number("per_class", per_class, integer=True, minimum=0, maximum=smallest - 1)
    shuffled = _generator(seed).permutation(len(examples))
    by_class = shuffled[np.argsort(examples.labels[shuffled], kind="stable")]
    labels = examples.labels[by_class]
    rank = np.arange(len(labels)) - np.searchsorted(labels, labels)  # within the class
    held = np.zeros(len(examples), bool)
    held[by_class[rank < per_class]] = True
    return examples.take(~held), examples.take(held)


def training_batches(
    examples: Examples,
    batch_size: int,
    seed: int,
    start_step: int = 0,
    pick: Pick | None = None,
) -> tf.data.Dataset:
    """Endless shuffled, augmented batches.

    Every example comes once per pass, in a new order each time. The order is a stateless
    permutation of the row numbers, so shuffling is global and takes no memory, and `start_step`
    takes up a training where it stopped without drawing what came before. Batch number t is a
    function of `seed`, `batch_size` and t alone, as long as no broken image is skipped.

    Args:
        examples: the part to train on.
        batch_size: examples per batch.
        seed: of the order and the augmentation.
        start_step: number of the first batch.
        pick: another order of the examples, such as `class_groups`.

    Returns:
        (examples, labels): (batch_size, *shape) float32, images as `pixel / 255`; (batch_size,)
        int32.
    """
    check_number("batch_size", batch_size, integer=True, minimum=1)
    check_number("seed", seed, integer=True, minimum=0)
    check_number("start_step", start_step, integer=True, minimum=0)
    _check_not_empty(examples)
    all_rows, all_labels = tf.constant(examples.rows), tf.constant(examples.labels)

    def draw(step):
        positions = step * batch_size + tf.range(batch_size, dtype=tf.int64)
        chosen = (pick or shuffled)(positions, len(examples), seed)
        return tf.gather(all_rows, chosen), tf.gather(all_labels, chosen)

    def finish(step, batch):
        images, labels = batch
        if examples.augment is not None:
            images = examples.augment(images, tf.stack([tf.constant(seed, tf.int64), step]))
        return normalise(images), labels

    steps = tf.data.Dataset.counter(start_step)
    batches = examples.source.load(steps.map(draw), len(examples))
    batches = batches.rebatch(batch_size, drop_remainder=True).enumerate(start_step)
    return batches.map(finish, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def evaluation_batches(examples: Examples, batch_size: int) -> tf.data.Dataset:
    """Each example once, in order and as it is.

    Returns:
        (examples, labels) as from `training_batches`; the last batch may be smaller.
    """
    check_number("batch_size", batch_size, integer=True, minimum=1)
    _check_not_empty(examples)
    rows = tf.data.Dataset.from_tensor_slices((examples.rows, examples.labels)).batch(batch_size)
    batches = examples.source.load(rows, len(examples)).rebatch(batch_size)
    batches = batches.map(
        lambda images, labels: (normalise(images), labels), num_parallel_calls=tf.data.AUTOTUNE
    )
    return batches.prefetch(tf.data.AUTOTUNE)


def normalise(images: tf.Tensor) -> tf.Tensor:
    """Returns `pixel / 255` of uint8 images as float32; what is float already stays as it is."""
    return tf.cast(images, tf.float32) / 255.0 if images.dtype == tf.uint8 else images


def shuffled(positions: tf.Tensor, total: int, seed: int) -> tf.Tensor:
    """Row of each position of an endless stream that permutes `total` rows anew in each pass."""
    passes = positions // total
    last = tf.constant(total - 1, tf.int64)
    return shuffle_index(positions % total, last, seed, passes, tf.zeros_like(passes))


def shuffle_index(
    index: tf.Tensor, last: tf.Tensor, seed: int, passes: tf.Tensor, stream: tf.Tensor
) -> tf.Tensor:
    """Where each index goes in a random permutation of 0 to `last`, one per seed, pass and stream.

    Args:
        index: (n,) int64.
        last: (n,) or scalar int64, the largest index.
        seed: the same for all.
        passes: (n,) int64.
        stream: (n,) int64.
    """
    first = tf.fill(tf.shape(passes), tf.constant(seed, tf.int64))
    # The raw operation, because its wrapper mis-shapes a seed per position (TensorFlow 2.21). With
    # the default of 4 rounds, successive passes are alike (correlation up to 0.7) and neighbours
    # stay together up to 12 times as often as chance; from 8 rounds on it is as often.
    return tf.raw_ops.RandomIndexShuffle(
        index=index,
        seed=tf.stack([first, passes, stream], axis=1),
        max_index=last,
        rounds=32,
    )


def _check_not_empty(examples: Examples) -> None:
    if not len(examples):
        raise ValueError(f"{examples.name}: expected at least one example, got none")


def _generator(seed: int) -> np.random.Generator:
    check_number("seed", seed, integer=True, minimum=0)
    return np.random.Generator(np.random.PCG64(seed))
