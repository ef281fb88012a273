"""How many examples per second each pipeline delivers, and how many training consumes."""

import pathlib
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_BATCH = 128
_CLASSES = 100  # of the made-up data


def jpegs(count: int, size: int) -> Iterable[bytes]:
    """Yields `count` different images with a photograph's mix of coarse and fine structure."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    for _ in range(count):
        coarse = tf.image.resize(rng.uniform(0, 255, (8, 8, 3)), (size, size), "bicubic")
        fine = rng.normal(0, 8, (size, size, 3))
        yield tf.io.encode_jpeg(np.clip(coarse + fine, 0, 255).astype(np.uint8), quality=95).numpy()


def write_records(folder: pathlib.Path, images: Iterable[bytes]) -> None:
    """Writes a record file without identity records, like MXNet's im2rec."""
    magic = struct.pack("<I", 0xCED7230A)
    index = []
    with open(folder / "train.rec", "wb") as file:
        for key, image in enumerate(images):
            content = struct.pack("<IfQQ", 0, key % _CLASSES, key, 0) + image
            if magic in content:
                continue  # such a record is written in parts; one image less does not matter here
            index.append(f"{key}\t{file.tell()}\n")
            file.write(magic + struct.pack("<I", len(content)) + content + bytes(-len(content) % 4))
    (folder / "train.idx").write_text("".join(index))
    (folder / "property").write_text(f"{_CLASSES},112,112")


def write_folders(folder: pathlib.Path, images: Iterable[bytes]) -> None:
    """Writes a folder per class."""
    for number, image in enumerate(images):
        target = folder / str(number % _CLASSES) / f"{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(image)


def in_memory(name: str, array: np.ndarray, augment: Any = None) -> Any:
    """Returns random labels for an array of images or embeddings."""
    from sparse_embed.datasets.examples import ArraySource, Examples

    return Examples(
        name=name,
        shape=array.shape[1:],
        source=ArraySource(array),
        rows=np.arange(len(array)),
        labels=np.arange(len(array), dtype=np.int32) % _CLASSES,
        class_names=tuple(map(str, range(_CLASSES))),
        augment=augment,
    )


def rate(step: Callable[[], object], per_step: int, seconds: float) -> float:
    """Returns how many examples per second `step` handles, once it has warmed up."""
    for _ in range(5):
        step()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds or steps < 3:
        step()
        steps += 1
    return steps * per_step / (time.perf_counter() - start)


def pipeline_rate(batches: "tf.data.Dataset", seconds: float) -> float:
    """Returns examples per second of a pipeline that nothing waits for."""
    iterator = iter(batches)
    return rate(lambda: next(iterator), _BATCH, seconds)


def training_rate(encoder: "keras.Model", num_classes: int, seconds: float) -> float:
    """Returns examples per second of training with ArcFace on a batch in memory."""
    import keras
    import tensorflow as tf

    from sparse_embed import losses, models

    model = keras.Model(encoder.input, models.ArcFaceHead(num_classes)(encoder.output))
    model.compile("adam", losses.ArcFaceLoss())
    images = tf.random.uniform((_BATCH, *encoder.input_shape[1:]))
    labels = tf.range(_BATCH) % num_classes
    return rate(lambda: model.train_on_batch(images, labels), _BATCH, seconds)


def pipelines(
    folder: pathlib.Path, records_dir: pathlib.Path | None, num_images: int
) -> Iterable[tuple[str, str, "tf.data.Dataset"]]:
    """Yields (name, the network it feeds, training batches).

    Args:
        folder: where made-up data may go.
        records_dir: folder of record files; None to make them up.
        num_images: how many images to make up.
    """
    from sparse_embed.datasets import glyphs, image_folder, recordio, tfrecords
    from sparse_embed.datasets.shift_flip import random_shift_flip

    rng = np.random.default_rng(0)
    cifar = in_memory(
        "cifar100",
        rng.integers(0, 256, (50000, 32, 32, 3), np.uint8),
        random_shift_flip,
    )
    yield "cifar100", "convnet", cifar.training_batches(_BATCH, seed=0)
    part = glyphs.split(glyphs.load())["train"]
    yield "glyphs", "convnet", part.training_batches(_BATCH, seed=0)
    vectors = in_memory("dense_embeddings", rng.normal(size=(13233, 128)).astype(np.float32))
    yield "dense_embeddings", "head", vectors.training_batches(_BATCH, seed=0)

    if records_dir is None:
        write_records(folder, jpegs(num_images, 112))
    records = recordio.load(records_dir or folder)
    yield "recordio", "mobilefacenet", records.training_batches(_BATCH, seed=0)
    some = records.take(np.arange(min(len(records), num_images)))
    shards = tfrecords.write_shards(some, folder / "shards", num_shards=8)
    yield "tfrecords", "mobilefacenet", shards.training_batches(_BATCH, seed=0)
    write_folders(folder / "photos", jpegs(num_images // 4, 250))
    photos = image_folder.load(folder / "photos", (112, 112, 3))
    yield "image_folder", "mobilefacenet", photos.training_batches(_BATCH, seed=0)


def networks() -> dict[str, tuple[str, Callable[[], "keras.Model"]]]:
    """Returns name -> (description, builder) of the networks that the pipelines feed."""
    import keras

    from sparse_embed import models

    def head() -> keras.Model:
        vectors = keras.Input((128,))
        return keras.Model(vectors, models.embedding_head(vectors, 512, "relu"))

    def encoder(*arguments: Any) -> Callable[[], keras.Model]:
        return lambda: models.build_encoder(*arguments)

    return {
        "convnet": ("convnet on 32x32", encoder("convnet", 512, "relu", (32, 32, 3))),
        "head": ("sparse head on 128-d", head),
        "mobilefacenet": (
            "mobilefacenet of width 0.25 on 112x112",
            encoder("mobilefacenet", 512, "relu", (112, 112, 3), 0.25),
        ),
    }


def measure(
    records_dir: pathlib.Path | None, num_images: int, seconds: float
) -> Iterator[tuple[str, float, float, str]]:
    """Measures and yields (pipeline, its examples per second, those of training, the network).

    Args:
        records_dir: see `pipelines`.
        num_images: see `pipelines`.
        seconds: how long to time each pipeline and network.
    """
    known = networks()
    consumed: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, network, batches in pipelines(pathlib.Path(folder), records_dir, num_images):
            description, build = known[network]
            if network not in consumed:  # beside its pipelines, since the machine may be shared
                consumed[network] = training_rate(build(), 1000, seconds)
            yield name, pipeline_rate(batches, seconds), consumed[network], description
