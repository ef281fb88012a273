"""Embedding goes through one graph: little memory, one trace, the vectors of the Keras model."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.experiments.encoders.embedding import embed, examples_at_once, inference
from sparse_embed.models import build_encoder

# Embeds batches of 32 images with 40 layers, each of whose activations takes 8 MB. Prints the
# megabytes that the process had at most after 4 batches, and after 40 more, beyond what it had
# after the first image.
PEAK = """
import resource
import keras, numpy as np, tensorflow as tf
from sparse_embed.experiments.encoders.embedding import embed

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

inputs = keras.Input((64, 64, 1))
x = inputs
for _ in range(40):
    x = keras.layers.Conv2D(16, 1, activation="relu")(x)
encoder = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(x))

def batches(count, size):
    one = tf.data.Dataset.from_tensors((np.ones((64, 64, 1), np.float32), 0))
    return one.repeat(count * size).batch(size)

embed(encoder, batches(1, 1), sparse=False, quiet=True)
before = peak()
for count in (4, 40):
    embed(encoder, batches(count, 32), sparse=False, quiet=True)
    print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_memory_holds_a_few_activations_however_many_batches_and_layers():
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    few, many = map(float, done.stdout.split())
    assert few < 20 * 8  # all 40 layers take 320 MB
    assert many < few + 30  # 36 batches more would take 9 GB if anything of them stayed


@pytest.fixture(scope="module")
def encoder():
    keras.utils.set_random_seed(0)
    return build_encoder("convnet", 32, "relu", (16, 16, 1), width=0.25, initial_probability=0.2)


def batches_of(images, size):
    return tf.data.Dataset.from_tensor_slices((images, np.arange(len(images)))).batch(size)


def test_vectors_are_those_of_the_keras_model(encoder):
    images = np.random.default_rng(0).random((50, 16, 16, 1), np.float32)
    expected = encoder(images, training=False).numpy()
    for sparse in (True, False):
        vectors, labels = embed(encoder, batches_of(images, 16), sparse, quiet=True)
        vectors = vectors.toarray() if sparse else vectors
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
        np.testing.assert_array_equal(vectors == 0, expected == 0)
        np.testing.assert_array_equal(labels, np.arange(50))


def test_one_trace_serves_batches_of_all_sizes_and_trained_weights(encoder):
    images = np.random.default_rng(1).random((37, 16, 16, 1), np.float32)
    encode = inference(encoder)
    assert inference(encode) is encode
    for size in (16, 5, 37):
        before, _ = embed(encode, batches_of(images, size), sparse=False, quiet=True)
    assert encode.experimental_get_tracing_count() == 1
    layer = encoder.get_layer("embedding_linear")
    kept = layer.get_weights()
    layer.set_weights([-weight for weight in kept])  # as if trained on
    after, _ = embed(encode, batches_of(images, 37), sparse=False, quiet=True)
    np.testing.assert_allclose(after, encoder(images, training=False), atol=1e-6)
    assert not np.allclose(before, after)
    layer.set_weights(kept)
    assert encode.experimental_get_tracing_count() == 1


def test_another_function_is_traced_twice_at_most():
    encode = inference(lambda images: tf.reduce_mean(images, axis=(1, 2)))
    images = np.random.default_rng(2).random((50, 4, 4, 3), np.float32)
    vectors, _ = embed(encode, batches_of(images, 16), sparse=False, quiet=True)
    np.testing.assert_allclose(vectors, images.mean(axis=(1, 2)), rtol=1e-5)
    for size in (9, 13, 50):
        embed(encode, batches_of(images, size), sparse=False, quiet=True)
    assert encode.experimental_get_tracing_count() <= 2


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((32, 32, 1), 512),
        ((32, 32, 3), 512),
        ((16, 16, 1), 512),
        ((112, 112, 3), 41),
        ((1000, 1000, 3), 1),
        ((384,), 512),
    ],
)
def test_large_images_come_in_small_batches(shape, expected):
    assert examples_at_once(shape) == expected
