"""Shards of TFRecords: encoded images in a few large files, for disks that dislike small reads.

`write_shards` copies any labelled images on disk (record files, image folders) into shards. Each
image is checked to decode, and goes to a shard at random; reading interleaves the shards and
shuffles in a buffer, so that the disk only ever reads forward. Beside the shards, `manifest.json`
says what they hold. A part of the classes reads all shards, and drops the records of other classes.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from sparse_embed.common.checks import check_number
from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path, remove_abandoned
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.reading import read_json, reading
from sparse_embed.datasets.encoded_images import EncodedImages, decode_image
from sparse_embed.datasets.examples import Batch, Examples, Part, Pick, normalise
from sparse_embed.datasets.image_headers import check_header
from sparse_embed.datasets.shift_flip import random_flip

_MANIFEST = "manifest.json"
_FORMAT = 2  # format 1 did not count the images of each class
_CHUNK = 1024  # images read ahead while a shard is written
_LARGEST_SIDE = 4096  # of an image, in pixels
_BLOCK = 64  # records that are parsed together
_FEATURES = {
    "image": tf.io.FixedLenFeature((), tf.string),
    "label": tf.io.FixedLenFeature((), tf.int64),
}


@dataclasses.dataclass(frozen=True)
class Shards(Part):
    """A folder of shards, or some of its classes.

    Attributes:
        folder: where they are.
        name: name of the data set.
        shape: (height, width, channels) of an image.
        resize: whether images of another size are scaled and cropped to `shape`.
        num_shards: number of files.
        class_names: name of each label.
        class_counts: number of images of each label.
        labels_of: the label of each class in the records, -1 for those that are not in this part.
        mirror: whether training mirrors images at random.
    """

    folder: pathlib.Path
    name: str
    shape: tuple[int, int, int]
    resize: bool
    num_shards: int
    class_names: tuple[str, ...]
    class_counts: np.ndarray
    labels_of: np.ndarray
    mirror: bool = True
    labels: ClassVar[None] = None  # type: ignore[misc]

    def __len__(self) -> int:
        return int(self.class_counts.sum())

    def select(self, classes: np.ndarray) -> "Shards":
        """Returns only the images of the given labels, re-numbered from 0 in ascending order."""
        classes = np.unique(classes)
        new = np.full(self.num_classes + 1, -1, np.int32)  # the last, at -1, is for other classes
        new[classes] = np.arange(len(classes))
        return dataclasses.replace(
            self,
            class_names=tuple(self.class_names[label] for label in classes),
            class_counts=self.class_counts[classes],
            labels_of=new[self.labels_of],
        )

    def training_batches(
        self,
        batch_size: int,
        seed: int,
        start_step: int = 0,
        pick: Pick | None = None,
        buffer_size: int = 10000,
    ) -> tf.data.Dataset:
        """Endless shuffled batches, mirrored at random; see `Examples.training_batches`.

        Args:
            batch_size: images per batch.
            seed: of the order and the mirroring.
            start_step: number of the first batch; those before it are read, but not decoded.
            pick: must be None.
            buffer_size: number of encoded images in memory among which the next one is drawn.
        """
        self._check(batch_size)
        check_number("seed", seed, integer=True, minimum=0)
        check_number("start_step", start_step, integer=True, minimum=0)
        if pick is not None:
            raise ValueError(
                "pick: expected None, since shards are read in the order of their files"
            )

        def finish(step: tf.Tensor, batch: Batch) -> Batch:
            images = self._decode(batch[0])
            if self.mirror:
                images = random_flip(images, tf.stack([tf.constant(seed, tf.int64), step]))
            return normalise(images), batch[1]

        # A function of the pass, since a `shuffle` would go on where the last iterator was.
        def one_pass(number: tf.Tensor) -> tf.data.Dataset:
            order = tf.stack([tf.constant(seed, tf.int64), number])
            files = tf.random.experimental.stateless_shuffle(self._files, order)
            return tf.data.Dataset.from_tensor_slices(files).interleave(
                self._records,
                cycle_length=16,
                block_length=16,
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )

        records = tf.data.Dataset.counter().flat_map(one_pass)
        records = records.shuffle(buffer_size, seed, reshuffle_each_iteration=False)
        batches = records.batch(batch_size, drop_remainder=True).skip(start_step)
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
        """Each image once and as it is, shard by shard; see `Examples.evaluation_batches`.

        Images before number `start` are read, but not decoded.
        """
        del views, seed  # nothing is warped
        self._check(batch_size)
        check_number("start", start, integer=True, minimum=0)

        def finish(encoded: tf.Tensor, labels: tf.Tensor) -> Batch:
            return normalise(self._decode(encoded)), labels

        files = tf.data.Dataset.from_tensor_slices(self._files)
        records = files.flat_map(self._records).skip(start)
        batches = records.take(-1 if count is None else count).batch(batch_size)
        return batches.map(finish, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def fingerprint(self) -> bytes:
        """Returns what tells these examples from all others of their source."""
        return self.class_counts.tobytes()

    def damage(self) -> str | None:
        """Reads and decodes all shards; returns what is wrong with the first bad one, if any."""
        found = map(self._damage_of, _paths(self.folder, self.num_shards))
        return next((reason for reason in found if reason), None)

    def _damage_of(self, path: pathlib.Path) -> str | None:
        try:
            _count(path, len(self.labels_of))
            for encoded, _ in self._records(str(path)):
                self._decode(encoded[None])
        except DataError as error:
            return str(error)
        except tf.errors.InvalidArgumentError as error:
            return f"{path}: holds an image that cannot be decoded: {_reason(error)}"
        return None

    def _check(self, batch_size: int) -> None:
        check_number("batch_size", batch_size, integer=True, minimum=1)
        if not len(self):
            raise ValueError(f"{self.name}: expected at least one example, got none")

    @property
    def _files(self) -> list[str]:
        return [str(path) for path in _paths(self.folder, self.num_shards)]

    def _records(self, path: tf.Tensor) -> tf.data.Dataset:
        """Returns the (encoded image, int32 label) of this part's classes in a shard."""
        labels_of = tf.constant(self.labels_of)

        def parse(records: tf.Tensor) -> Any:
            parsed = tf.io.parse_example(records, _FEATURES)
            labels = tf.gather(labels_of, parsed["label"])
            return tf.nest.map_structure(
                lambda values: tf.boolean_mask(values, labels >= 0), (parsed["image"], labels)
            )

        return tf.data.TFRecordDataset(path).batch(_BLOCK).map(parse).unbatch()

    def _decode(self, encoded: tf.Tensor) -> tf.Tensor:
        """Turns a batch of encoded images into uint8 images."""

        def check(images: np.ndarray) -> np.bool_:
            try:
                for data in images:
                    check_header(data, None if self.resize else self.shape[:2])
            except ValueError as error:
                raise DataError(f"{self.folder}: holds a broken image: {error}") from error
            return np.True_

        with tf.control_dependencies([tf.numpy_function(check, [encoded], tf.bool)]):
            return tf.map_fn(
                lambda data: decode_image(data, self.shape, self.resize),
                encoded,
                fn_output_signature=tf.TensorSpec(self.shape, tf.uint8),
            )


def write_shards(
    examples: Examples, folder: str | os.PathLike[str], num_shards: int, seed: int = 0
) -> Shards:
    """Copies images on disk into shards.

    A shard appears under its name only when it is whole. After an interruption, a call with the
    same arguments writes the shards that are still missing.

    Args:
        examples: images of a source on disk, whose `on_error` says what happens to broken ones.
        folder: made if need be; must not hold other shards.
        num_shards: number of files.
        seed: which image goes to which shard.
    """
    source = examples.source
    if not isinstance(source, EncodedImages):
        raise ValueError(f"{examples.name}: expected encoded images on disk")
    check_number("num_shards", num_shards, integer=True, minimum=1, maximum=len(examples))
    check_number("seed", seed, integer=True, minimum=0)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = hashlib.sha256(examples.rows.tobytes() + examples.labels.tobytes()).hexdigest()
    plan = {
        "format": _FORMAT,
        "name": examples.name,
        "shape": list(examples.shape),
        "resize": source.resize,
        "num_shards": num_shards,
        "seed": seed,
        "content": content,
        "class_names": list(examples.class_names),
    }
    _start(folder, plan)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(examples))
    counts = np.zeros(examples.num_classes, np.int64)
    with progress_bar(
        total=len(examples), desc=f"shards of {examples.name}", unit=" images"
    ) as progress:
        for shard, path in enumerate(_paths(folder, num_shards)):
            part = examples.take(np.sort(order[shard::num_shards]))
            if path.exists():
                counts += _count(path, len(counts))
                progress.update(len(part))
            else:
                counts += _write_shard(part, source, path, progress)
    _finish(folder, plan, counts)
    return open_shards(folder)


def open_shards(folder: str | os.PathLike[str]) -> Shards:
    """Returns the shards that `write_shards` wrote to a folder."""
    folder = pathlib.Path(folder)
    manifest = _manifest(folder)
    if manifest is None or manifest.get("num_examples") is None:
        raise DataError(f"{folder}: expected shards, found none or an unfinished conversion")
    _check_manifest(folder / _MANIFEST, manifest)
    absent = [path for path in _paths(folder, manifest["num_shards"]) if not path.exists()]
    if absent:
        raise DataError(f"{absent[0]}: this shard is missing")
    if manifest["format"] == 1:
        manifest = _count_classes(folder, manifest)
    return Shards(
        folder,
        manifest["name"],
        tuple(manifest["shape"]),
        manifest["resize"],
        manifest["num_shards"],
        tuple(manifest["class_names"]),
        class_counts=np.array(manifest["class_counts"], np.int64),
        labels_of=np.arange(len(manifest["class_names"]), dtype=np.int32),
    )


def _check_manifest(path: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Raises DataError unless all that `Shards` needs is there and makes sense."""
    with reading(path, "the manifest that `prepare_data` writes"):
        for name, most in (("num_shards", 99_999), ("num_examples", None)):
            check_number(name, manifest[name], integer=True, minimum=1, maximum=most)
        for side in manifest["shape"][:2]:
            check_number("shape", side, integer=True, minimum=1, maximum=_LARGEST_SIDE)
        if len(manifest["shape"]) != 3 or manifest["shape"][2] not in (1, 3):
            raise ValueError(f"shape={manifest['shape']}: expected height, width and 1 or 3")
        names = [manifest["name"], *manifest["class_names"]]
        if not all(isinstance(name, str) for name in names) or len(names) < 2:
            raise ValueError("name and class_names: expected text")
        if not isinstance(manifest["resize"], bool):
            raise ValueError(f"resize={manifest['resize']!r}: expected true or false")
        counts = manifest.get("class_counts")
        if counts is not None:
            for count in counts:
                check_number("class_counts", count, integer=True, minimum=0)
            if (len(counts), sum(counts)) != (len(names) - 1, manifest["num_examples"]):
                raise ValueError("class_counts: expected one for each class, num_examples in all")
        elif manifest["format"] > 1:
            raise KeyError("class_counts")


def _count_classes(folder: pathlib.Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Returns a manifest of format 1 as one of today, and saves it if the folder allows it."""
    paths = _paths(folder, manifest["num_shards"])
    counts = np.zeros(len(manifest["class_names"]), np.int64)
    for path in progress_bar(paths, desc=f"classes of {manifest['name']}", unit=" shards"):
        counts += _count(path, len(counts))
    try:
        return _finish(folder, {**manifest, "format": _FORMAT}, counts)
    except OSError as error:
        logging.warning("%s: images per class are counted each time: %s", folder, error)
        return {**manifest, "class_counts": counts.tolist()}


def _count(path: pathlib.Path, num_classes: int) -> np.ndarray:
    """Returns the number of images of each class in a shard; DataError if it is damaged."""
    counts = np.zeros(num_classes, np.int64)
    try:
        for records in tf.data.TFRecordDataset(str(path)).batch(_BLOCK):
            labels = tf.io.parse_example(records, {"label": _FEATURES["label"]})["label"].numpy()
            if labels.min() < 0 or labels.max() >= num_classes:
                raise DataError(f"{path}: expected labels from 0 to {num_classes - 1}")
            counts += np.bincount(labels, minlength=num_classes)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        raise DataError(
            f"{path}: damaged: {_reason(error)}. Delete it: prepare_data with the flags that made "
            "it writes it again"
        ) from error
    return counts


def _reason(error: tf.errors.OpError) -> str:
    """Returns what TensorFlow says of the data, without its own names."""
    reason: str = error.message.partition("\n")[0].split("}} ")[-1].split(" [Op:")[0].strip()
    return reason


def _write_shard(
    part: Examples, source: EncodedImages, path: pathlib.Path, progress: tqdm
) -> np.ndarray:
    """Writes a shard; returns the number of images of each class in it."""
    counts = np.zeros(part.num_classes, np.int64)
    with (
        atomic_path(path) as temporary,
        tf.io.TFRecordWriter(str(temporary)) as writer,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        for start in range(0, len(part), _CHUNK):
            chunk = part.take(np.arange(start, min(start + _CHUNK, len(part))))
            for data, label in zip(
                pool.map(source.check_or_report, chunk.rows.tolist()), chunk.labels, strict=True
            ):
                if data is not None:
                    writer.write(_serialize(data, int(label)))
                    counts[label] += 1
            progress.update(len(chunk))
    return counts


def _serialize(image: bytes, label: int) -> bytes:
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    record: bytes = tf.train.Example(
        features=tf.train.Features(feature=feature)
    ).SerializeToString()
    return record


def _start(folder: pathlib.Path, plan: dict[str, Any]) -> None:
    """Writes the plan, or checks that an earlier run had the same one."""
    remove_abandoned(folder)
    earlier = _manifest(folder)
    if earlier is None:
        _save(folder, plan)
    else:
        for name, value in plan.items():
            if name != "format" and earlier.get(name) != value:
                raise ValueError(
                    f"{folder}: holds other shards: {name} is {str(earlier.get(name))[:80]}, "
                    f"expected {str(value)[:80]}"
                )


def _manifest(folder: pathlib.Path) -> dict[str, Any] | None:
    path = folder / _MANIFEST
    if not path.exists():
        return None
    content: dict[str, Any] = read_json(path, "the manifest that `prepare_data` writes")
    if content.get("format") not in (1, _FORMAT):
        raise DataError(f"{path}: expected format {_FORMAT}")
    return content


def _finish(folder: pathlib.Path, plan: dict[str, Any], counts: np.ndarray) -> dict[str, Any]:
    """Saves and returns the manifest of shards that are whole."""
    manifest = {**plan, "num_examples": int(counts.sum()), "class_counts": counts.tolist()}
    _save(folder, manifest)
    return manifest


def _save(folder: pathlib.Path, content: dict[str, Any]) -> None:
    with atomic_path(folder / _MANIFEST) as temporary:
        temporary.write_text(json.dumps(content))


def _paths(folder: pathlib.Path, num_shards: int) -> list[pathlib.Path]:
    return [folder / f"{i:05d}-of-{num_shards:05d}.tfrecord" for i in range(num_shards)]
