"""Shards of TFRecords and their manifest; whole files, or records with the right checksums."""

import json
import pathlib

import tensorflow as tf
from fuzz import arrays, pictures
from fuzz.mutations import Parts

from sparse_embed.datasets import tfrecords
from sparse_embed.experiments.core.data import reading_part

TOKENS = [
    b"image",
    b"label",
    b"\n",
    b"\x0a\x05image",
    b"\x0a\x05label",
    b"\x12",
    b"\x1a",
    b"\x08\x01",
]
_MANIFEST = {
    **{"format": 1, "name": "faces", "shape": [8, 8, 3], "resize": False, "num_shards": 1},
    **{"seed": 0, "content": "00", "class_names": ["a", "b"], "num_examples": 2},
}
_SHARD = "00000-of-00001.tfrecord"


def seeds() -> list[Parts]:
    """A shard of two images, in one piece and in records."""
    examples = [
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    "image": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[pictures.encoded("PNG", label)])
                    ),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
            )
        ).SerializeToString()
        for label in range(2)
    ]
    manifest = {"manifest.json": json.dumps(_MANIFEST).encode()}
    resizing = json.dumps({**_MANIFEST, "shape": [5, 7, 3], "resize": True}).encode()
    records = {f"record{place}": example for place, example in enumerate(examples)}
    return [
        {**manifest, **records},
        {"manifest.json": resizing, **records},
        {**manifest, _SHARD: _shard(examples)},
    ]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Opens the folder and reads all images."""
    parts = dict(parts)
    records = [parts.pop(name) for name in sorted(parts) if name.startswith("record")]
    if records:
        parts[_SHARD] = _shard(records)
    arrays.write(parts, folder)
    shards = tfrecords.open_shards(folder)
    assert len(shards) >= 0
    assert shards.num_classes == len(shards.class_names)
    with reading_part(shards):
        for images, labels in shards.evaluation_batches(2):
            assert images.shape == (len(labels), *shards.shape)
            values = labels.numpy()
            assert ((values >= 0) & (values < shards.num_classes)).all(), "a label without a class"


def _shard(records: list[bytes]) -> bytes:
    """The file of the records, as TensorFlow writes it."""
    with tf.io.TFRecordWriter("ram://shard") as writer:
        for record in records:
            writer.write(record)
    return tf.io.gfile.GFile("ram://shard", "rb").read()
