"""What TensorBoard's own projector reads is what the encoder returns."""

import csv

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image
from tensorboard.plugins.projector import ProjectorConfig

from sparse_embed.datasets.examples import ArraySource, Examples
from sparse_embed.experiments.encoders.embedding import inference
from sparse_embed.experiments.training import projector
from sparse_embed.models import build_encoder

NAMES = ("a class", "tab\tin it", "", "d")


def examples(shape, count):
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, (count, *shape)).astype(np.uint8)
    if len(shape) == 1:
        array = array.astype(np.float32)
    labels = np.sort(np.arange(count) % 4).astype(np.int32)
    return Examples("some", shape, ArraySource(array), np.arange(count), labels, NAMES), array


def read(folder):
    config = text_format.Parse((folder / projector.CONFIG).read_text(), ProjectorConfig())
    (embedding,) = config.embeddings
    vectors = np.loadtxt(folder / embedding.tensor_path, delimiter="\t")
    with open(folder / embedding.metadata_path, encoding="utf-8") as file:
        names = [row[0] for row in csv.reader(file, delimiter="\t")]
    return embedding, vectors, names


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_images_come_with_vectors_names_and_sprite(tmp_path, channels, mode):
    part, array = examples((16, 16, channels), 30)
    keras.utils.set_random_seed(0)
    encoder = build_encoder("convnet", 8, "relu", (16, 16, channels), width=0.1)
    projector.write(tmp_path, inference(encoder), part)
    embedding, vectors, names = read(tmp_path)
    expected = encoder(array / np.float32(255), training=False).numpy()
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_array_equal(vectors == 0, expected == 0)
    shown = ["a class", "tab in it", "(blank)", "d"]
    assert names == [shown[label] for label in part.labels]
    sprite = Image.open(tmp_path / embedding.sprite.image_path)
    assert list(embedding.sprite.single_image_dim) == [32, 32]
    assert sprite.size == (6 * 32, 6 * 32)  # the least square that holds 30
    assert sprite.mode == mode
    tile = np.asarray(sprite.crop((32, 32, 64, 64)), np.float32)  # the eighth image
    image = Image.fromarray(array[7].squeeze()).resize((32, 32))
    assert np.abs(tile - np.asarray(image, np.float32)).max() <= 3


def test_sample_is_bounded_and_vectors_have_no_sprite(tmp_path):
    part, _ = examples((5,), 1500)
    projector.write(tmp_path, inference(lambda rows: tf.nn.relu(rows)), part)
    embedding, vectors, names = read(tmp_path)
    assert vectors.shape == (1000, 5)
    assert len(names) == 1000
    assert not embedding.HasField("sprite")
    assert not (tmp_path / projector.SPRITE).exists()
