"""Shards of TFRecords: encoded images in a few large files, for disks that dislike small reads.

`write_shards` copies any labelled images on disk (record files, image folders) into shards. Each
image is checked to decode, and goes to a shard at random; reading interleaves the shards and
shuffles in a buffer, so that the disk only ever reads forward. Beside the shards, `manifest.json`
says what they hold.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from sparse_embed.common.checks import check_number
from sparse_embed.common.files import atomic_path
from sparse_embed.common.progress import progress_bar
from sparse_embed.datasets.encoded_images import EncodedImages, decode_image
from sparse_embed.datasets.examples import Examples, Pick, normalise
from sparse_embed.datasets.shift_flip import random_flip

_MANIFEST = "manifest.json"
_FORMAT = 1
_CHUNK = 1024  # images read ahead while a shard is written
_FEATURES = {
    "image": tf.io.FixedLenFeature((), tf.string),
    "label": tf.io.FixedLenFeature((), tf.int64),
}


@dataclasses.dataclass(frozen=True)
class Shards:
    """A folder of shards.

    Attributes:
        folder: where they are.
        name: name of the data set.
        shape: (height, width, channels) of an image.
        resize: whether images of another size are scaled and cropped to `shape`.
        num_examples: number of images.
        num_shards: number of files.
        class_names: name of each label.
    """

    folder: pathlib.Path
    name: str
    shape: tuple[int, int, int]
    resize: bool
    num_examples: int
    num_shards: int
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return self.num_examples

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return len(self.class_names)

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
        check_number("batch_size", batch_size, integer=True, minimum=1)
        check_number("seed", seed, integer=True, minimum=0)
        check_number("start_step", start_step, integer=True, minimum=0)
        if pick is not None:
            raise ValueError(
                "pick: expected None, since shards are read in the order of their files"
            )

        def finish(step, records):
            images, labels = self._decode(records)
            images = random_flip(images, tf.stack([tf.constant(seed, tf.int64), step]))
            return normalise(images), labels

        records = self._files.shuffle(self.num_shards, seed).interleave(
            tf.data.TFRecordDataset,
            cycle_length=16,
            block_length=16,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        records = records.repeat().shuffle(buffer_size, seed)
        batches = records.batch(batch_size, drop_remainder=True).skip(start_step)
        batches = batches.enumerate(start_step).map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        return batches.prefetch(tf.data.AUTOTUNE)

    def evaluation_batches(self, batch_size: int, views: int = 1, seed: int = 1) -> tf.data.Dataset:
        """Each image once and as it is, shard by shard; see `Examples.evaluation_batches`."""
        del views, seed  # nothing is warped
        check_number("batch_size", batch_size, integer=True, minimum=1)

        def finish(records):
            images, labels = self._decode(records)
            return normalise(images), labels

        batches = tf.data.TFRecordDataset(self._files).batch(batch_size)
        return batches.map(finish, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    @property
    def _files(self) -> tf.data.Dataset:
        paths = _paths(self.folder, self.num_shards)
        return tf.data.Dataset.from_tensor_slices([str(path) for path in paths])

    def _decode(self, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Turns a batch of serialized records into uint8 images and int32 labels."""
        parsed = tf.io.parse_example(records, _FEATURES)
        images = tf.map_fn(
            lambda data: decode_image(data, self.shape, self.resize),
            parsed["image"],
            fn_output_signature=tf.TensorSpec(self.shape, tf.uint8),
        )
        return images, tf.cast(parsed["label"], tf.int32)


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
    written = 0
    with progress_bar(
        total=len(examples), desc=f"shards of {examples.name}", unit=" images"
    ) as progress:
        for shard, path in enumerate(_paths(folder, num_shards)):
            part = examples.take(np.sort(order[shard::num_shards]))
            if path.exists():
                written += sum(1 for _ in tf.data.TFRecordDataset(str(path)))
                progress.update(len(part))
            else:
                written += _write_shard(part, source, path, progress)
    _save(folder, {**plan, "num_examples": written})
    return open_shards(folder)


def open_shards(folder: str | os.PathLike[str]) -> Shards:
    """Returns the shards that `write_shards` wrote to a folder."""
    folder = pathlib.Path(folder)
    manifest = _manifest(folder)
    if manifest is None or manifest.get("num_examples") is None:
        raise ValueError(f"{folder}: expected shards, found none or an unfinished conversion")
    absent = [path for path in _paths(folder, manifest["num_shards"]) if not path.exists()]
    if absent:
        raise ValueError(f"{absent[0]}: this shard is missing")
    return Shards(
        folder,
        manifest["name"],
        tuple(manifest["shape"]),
        manifest["resize"],
        manifest["num_examples"],
        manifest["num_shards"],
        tuple(manifest["class_names"]),
    )


def _write_shard(part: Examples, source: EncodedImages, path: pathlib.Path, progress: tqdm) -> int:
    written = 0
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
                    written += 1
            progress.update(len(chunk))
    return written


def _serialize(image: bytes, label: int) -> bytes:
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _start(folder: pathlib.Path, plan: dict[str, Any]) -> None:
    """Writes the plan, or checks that an earlier run had the same one."""
    earlier = _manifest(folder)
    if earlier is None:
        _save(folder, plan)
    else:
        for name, value in plan.items():
            if earlier.get(name) != value:
                raise ValueError(
                    f"{folder}: holds other shards: {name} is {str(earlier.get(name))[:80]}, "
                    f"expected {str(value)[:80]}"
                )
    for unfinished in folder.glob(".*.tfrecord"):  # left by a killed run
        unfinished.unlink()


def _manifest(folder: pathlib.Path) -> dict[str, Any] | None:
    path = folder / _MANIFEST
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{path}: expected format {_FORMAT}")
    return content


def _save(folder: pathlib.Path, content: dict[str, Any]) -> None:
    with atomic_path(folder / _MANIFEST) as temporary:
        temporary.write_text(json.dumps(content))


def _paths(folder: pathlib.Path, num_shards: int) -> list[pathlib.Path]:
    return [folder / f"{i:05d}-of-{num_shards:05d}.tfrecord" for i in range(num_shards)]
