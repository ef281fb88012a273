"""What every data set has in common: labelled examples and their batches.

A data set's module loads `Examples`; these are split by class or by image, and become batches:

    part = split_by_class(image_folder.load("photos", (112, 112, 3)), test=100)
    for images, labels in part.train.training_batches(batch_size=256, seed=0):
        ...

Images are normalised in one way, `pixel / 255`: float32 from 0 (black) to 1 (white).
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sparse_embed.common.checks import check_number

# (a batch of images, two integers as for `tf.random.stateless_uniform`) -> the images, changed.
Augmentation = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

# (positions of an endless stream, number of examples, seed) -> which example is there.
Pick = Callable[[tf.Tensor, int, int], tf.Tensor]

Batch = tuple[tf.Tensor, tf.Tensor]  # images, or their rows, and labels

BLOCK = 256  # examples that share a random seed where evaluation warps them


class Unreadable(NamedTuple):
    """An example that could not be read: the file or record that it is in, and why."""

    input: str
    reason: str


class Part(abc.ABC):
    """A part of a data set, wherever its examples are stored.

    Attributes:
        name: name of the data set.
        shape: shape of one example: (height, width, channels) of an image, (dim,) of an embedding.
        class_names: name of each label.
        labels: (n,) the label of each example; None if they are only known as they are read.
    """

    name: str
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    labels: np.ndarray | None

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return len(self.class_names)

    @abc.abstractmethod
    def __len__(self) -> int: ...

    def size(self, views: int = 1) -> int:
        """Returns how many examples `evaluation_batches` gives."""
        del views
        return len(self)

    @abc.abstractmethod
    def select(self, classes: np.ndarray) -> "Part":
        """Returns only the examples of the given labels, re-numbered from 0 in ascending order."""

    @abc.abstractmethod
    def training_batches(
        self, batch_size: int, seed: int, start_step: int = 0, pick: Pick | None = None
    ) -> tf.data.Dataset:
        """Endless shuffled batches; see `Examples.training_batches`."""

    @abc.abstractmethod
    def evaluation_batches(
        self,
        batch_size: int,
        views: int = 1,
        seed: int = 1,
        start: int = 0,
        count: int | None = None,
    ) -> tf.data.Dataset:
        """Each example once; see `Examples.evaluation_batches`."""

    def stream(self, count: int, batch_size: int, seed: int, start: int = 0) -> tf.data.Dataset:
        """Examples that are drawn as often as wanted; see `Examples.stream`."""
        raise ValueError(f"{self.name}: expected a data set that draws its examples")

    @abc.abstractmethod
    def fingerprint(self) -> bytes:
        """Returns what tells these examples from all others of their source."""

    def failures(self, start: int = 0, stop: int | None = None) -> dict[int, Unreadable]:
        """Returns which of the examples with these numbers could not be read so far."""
        del start, stop
        return {}

    def left_out(self) -> list[Unreadable]:
        """Returns what could not be read so far, examples or not."""
        return []

    def damage(self) -> str | None:
        """Returns what is wrong with the files, after TensorFlow failed to read them."""
        return None


class Source(abc.ABC):
    """Where examples come from: an array in memory, or encoded images read when needed.

    Attributes:
        failures: why each row could not be read that was found broken so far.
    """

    failures: Mapping[int, str] = MappingProxyType({})

    @abc.abstractmethod
    def load(self, rows: tf.data.Dataset, total: int) -> tf.data.Dataset:
        """Turns batches of (row numbers, labels) into batches of (examples, labels).

        A batch may come out smaller than it went in, if the source skips broken examples.

        Args:
            rows: batches of ((batch,) int64, (batch,) int32).
            total: number of different rows that will come.
        """

    def describe(self, row: int) -> str:
        """Returns the name of a row, for messages."""
        return f"row {row}"


class ArraySource(Source):
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
class Examples(Part):
    """Labelled examples: which rows of a source, and the class of each.

    Attributes:
        name: name of the data set.
        shape: shape of one example: (height, width, channels) of an image, (dim,) of an embedding.
        source: where the examples come from.
        rows: (n,) int64, the rows of the source.
        labels: (n,) int32 in [0, num_classes); all -1, without classes, if unlabelled.
        class_names: name of each label.
        augment: how training changes a batch of images, if at all.
        view: how evaluation changes a block of images; None, the usual case, leaves them as they
            are.
    """

    name: str
    shape: tuple[int, ...]
    source: Source
    rows: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    augment: Augmentation | None = None
    view: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def size(self, views: int = 1) -> int:
        """Returns how many examples `evaluation_batches` gives."""
        return len(self) * (views if self.view is not None else 1)

    def fingerprint(self) -> bytes:
        """Returns what tells these examples from all others of their source."""
        return self.rows.tobytes() + self.labels.tobytes()

    def failures(self, start: int = 0, stop: int | None = None) -> dict[int, Unreadable]:
        """Returns which of the examples with these numbers could not be read so far."""
        failed = self.source.failures
        rows = self.rows[start:stop].tolist() if failed else []
        return {
            number: Unreadable(self.source.describe(row), failed[row])
            for number, row in enumerate(rows, start)
            if row in failed
        }

    def left_out(self) -> list[Unreadable]:
        """Returns what could not be read so far, examples or not."""
        found = self.source.failures.items()
        return [Unreadable(self.source.describe(row), reason) for row, reason in found]

    def take(self, positions: np.ndarray) -> "Examples":
        """Returns only the examples at the given positions (or where a mask is true)."""
        return dataclasses.replace(self, rows=self.rows[positions], labels=self.labels[positions])

    def select(self, classes: np.ndarray) -> "Examples":
        """Returns only the examples of the given labels, re-numbered from 0 in ascending order."""
        classes = np.unique(classes)
        part = self.take(np.isin(self.labels, classes))
        return dataclasses.replace(
            part,
            labels=np.searchsorted(classes, part.labels).astype(np.int32),
            class_names=tuple(self.class_names[label] for label in classes),
        )

    def training_batches(
        self, batch_size: int, seed: int, start_step: int = 0, pick: Pick | None = None
    ) -> tf.data.Dataset:
        """Endless shuffled, augmented batches.

        Every example comes once per pass, in a new order each time. The order is a stateless
        permutation of the row numbers, so shuffling is global and takes no memory, and `start_step`
        resumes a training run without drawing the batches before it. Batch number t is a
        function of `seed`, `batch_size` and t alone, as long as no broken image is skipped.

        Args:
            batch_size: examples per batch.
            seed: of the order and the augmentation.
            start_step: number of the first batch.
            pick: another order of the examples, such as `class_groups`.

        Returns:
            (examples, labels): (batch_size, *shape) float32, images as `pixel / 255`;
            (batch_size,) int32.
        """
        check_number("start_step", start_step, integer=True, minimum=0)
        self._check(batch_size, seed)

        def finish(step: tf.Tensor, batch: Batch) -> Batch:
            images, labels = batch
            if self.augment is not None:
                images = self.augment(images, _seeds(seed, step))
            return normalise(images), labels

        batches = self._endless(batch_size, seed, pick or shuffled, start_step)
        batches = batches.enumerate(start_step).map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        return batches.prefetch(tf.data.AUTOTUNE)

    def evaluation_batches(
        self,
        batch_size: int,
        views: int = 1,
        seed: int = 1,
        start: int = 0,
        count: int | None = None,
    ) -> tf.data.Dataset:
        """Each example once, in order; with a `view`, `views` times, warped anew each time.

        All examples come once, then all again. Item i is the same for any `batch_size` and any
        `views`.

        Args:
            batch_size: examples per batch.
            views: how often each example comes if it is warped; without a `view` it comes once.
            seed: of the warps.
            start: number of the first item; with a `view`, a multiple of 256.
            count: how many items come, if there are so many; None for all.

        Returns:
            (examples, labels) as from `training_batches`; the last batch may be smaller.
        """
        check_number("views", views, integer=True, minimum=1)
        self._check(batch_size, seed)
        times = 1 if self.view is None else views
        self._check_start(start)
        size = self._block_size(batch_size)
        left = max(0, times * len(self) - start)
        count = left if count is None else min(left, count)
        rows = tf.data.Dataset.from_tensor_slices((self.rows, self.labels)).repeat(times)
        rows = rows.skip(start).take(count)
        blocks = self.source.load(rows.batch(size), len(self)).rebatch(size)
        return self._finite(blocks, count, batch_size, seed, start)

    def stream(self, count: int, batch_size: int, seed: int, start: int = 0) -> tf.data.Dataset:
        """Exactly `count` examples, shuffled pass after pass, each warped anew by `view`.

        They are made as they are drawn: memory does not grow with `count`. Item i is the same for
        any `count` and `batch_size`, so a longer stream begins with a shorter one.

        Args:
            count: how many examples.
            batch_size: examples per batch.
            seed: of the order and the warps.
            start: number of the first one; a multiple of 256 with a `view`, else of `batch_size`.

        Returns:
            (examples, labels) as from `evaluation_batches`, in ceil(count / batch_size) batches.
        """
        check_number("count", count, integer=True, minimum=0)
        self._check(batch_size, seed)
        size = self._block_size(batch_size)
        check_number("start", start, integer=True, minimum=0)
        if start % size:
            raise ValueError(f"start={start}: expected a multiple of {size}")
        blocks = self._endless(size, seed, shuffled, start // size).take(-(-count // size))
        return self._finite(blocks, count, batch_size, seed, start)

    def _check(self, batch_size: int, seed: int) -> None:
        check_number("batch_size", batch_size, integer=True, minimum=1)
        check_number("seed", seed, integer=True, minimum=0)
        if not len(self):
            raise ValueError(f"{self.name}: expected at least one example, got none")

    def _check_start(self, start: int) -> None:
        check_number("start", start, integer=True, minimum=0)
        if self.view is not None and start % BLOCK:
            raise ValueError(
                f"start={start}: expected a multiple of {BLOCK}, of which warps are made"
            )

    def _block_size(self, batch_size: int) -> int:
        """Warps are drawn per block of a fixed size, so that they do not depend on the batches."""
        return batch_size if self.view is None else BLOCK

    def _endless(self, size: int, seed: int, pick: Pick, start: int = 0) -> tf.data.Dataset:
        """Batches of `size` examples as the source has them, from batch number `start` on."""
        all_rows, all_labels = tf.constant(self.rows), tf.constant(self.labels)

        def draw(step: tf.Tensor) -> Batch:
            chosen = pick(step * size + tf.range(size, dtype=tf.int64), len(self), seed)
            return tf.gather(all_rows, chosen), tf.gather(all_labels, chosen)

        rows = tf.data.Dataset.counter(start).map(draw)
        return self.source.load(rows, len(self)).rebatch(size, drop_remainder=True)

    def _finite(
        self, blocks: tf.data.Dataset, count: int, batch_size: int, seed: int, start: int = 0
    ) -> tf.data.Dataset:
        """Warps blocks of examples, the first at item `start`; makes batches of `count` items."""
        size = self._block_size(batch_size)
        first = start // size

        def finish(block: tf.Tensor, batch: Batch) -> Batch:
            images, labels = batch
            if self.view is not None:
                # The last block is filled up, since the warps depend on the size of the block.
                missing = [[0, size - tf.shape(images)[0]], *[[0, 0]] * len(self.shape)]
                full = tf.ensure_shape(tf.pad(images, missing), (size, *self.shape))
                images = self.view(full, _seeds(seed, block))
            left = count - (block - first) * size
            # Not a slice, which would share the block's buffer: where `rebatch` joins such parts,
            # TensorFlow logs an error that is none.
            kept = tf.range(tf.minimum(left, tf.shape(labels, tf.int64)[0]))
            return normalise(tf.gather(images, kept)), tf.gather(labels, kept)

        batches = blocks.enumerate(first).map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        batches = batches.rebatch(batch_size)
        if isinstance(self.source, ArraySource):  # which skips nothing
            length = -(-count // batch_size)
            batches = batches.apply(tf.data.experimental.assert_cardinality(length))
        return batches.prefetch(tf.data.AUTOTUNE)


class Parts(NamedTuple):
    """A data set in its three parts."""

    train: Part
    validation: Part
    test: Part


def split_by_class(examples: Part, validation: int = 0, test: int = 0, seed: int = 0) -> Parts:
    """Splits by class: no class is in two parts, and labels start at 0 in each.

    Which classes go where depends on their number and the seed alone.

    Args:
        examples: what to split.
        validation: number of validation classes.
        test: number of test classes; training gets all that are left.
        seed: decides which classes go where.
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


def normalise(images: tf.Tensor) -> tf.Tensor:
    """Returns `pixel / 255` of uint8 images as float32; floats stay as they are."""
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
    # stay together up to 12 times as often as by chance; from 8 rounds on, no more often.
    return tf.raw_ops.RandomIndexShuffle(
        index=index,
        seed=tf.stack([first, passes, stream], axis=1),
        max_index=last,
        rounds=32,
    )


def _seeds(seed: int, step: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.constant(seed, tf.int64), step])


def _generator(seed: int) -> np.random.Generator:
    check_number("seed", seed, integer=True, minimum=0)
    return np.random.Generator(np.random.PCG64(seed))
