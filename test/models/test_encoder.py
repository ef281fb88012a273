import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.models import ARCHITECTURES, ArcFaceHead, SoftThreshold, build_encoder

NAMES = sorted(ARCHITECTURES)
ACTIVATIONS = ("relu", "soft_threshold", "none")


def noise(count: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)


def narrow(name: str, activation: str) -> keras.Model:
    shape = (24,) if name == "linear" else (32, 32, 3)
    return build_encoder(name, 16, activation, shape, width=1 / 8)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_gets_a_gradient(name):
    """And the embeddings have unit norm, in training and at inference."""
    keras.utils.set_random_seed(1)
    encoder = narrow(name, "relu")
    assert encoder.name == name
    x = noise(8, encoder.input_shape[1:])
    cosines = ArcFaceHead(4)
    labels = np.arange(8) % 4
    with tf.GradientTape() as tape:
        embeddings = encoder(x, training=True)
        logits = 16 * cosines(embeddings)
        loss = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    variables = encoder.trainable_variables + cosines.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert gradient is not None, variable.path
        assert np.all(np.isfinite(gradient)), variable.path
        assert np.any(gradient), variable.path
    for y in (embeddings, encoder(x)):
        assert y.shape == (8, 16)
        assert y.dtype == tf.float32
        np.testing.assert_allclose(np.linalg.norm(y, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "activation"), [("convnet", "relu"), ("resnet20", "soft_threshold")]
)
def test_overfits_a_small_batch(name, activation):
    """Twelve images of noise in six classes: learnt by heart, and so at inference too."""
    keras.utils.set_random_seed(2)
    encoder = build_encoder(name, 32, activation, (16, 16, 1), width=1 / 4)
    x, labels = noise(12, (16, 16, 1)), np.arange(12) % 6
    model = keras.Sequential([encoder, ArcFaceHead(6), keras.layers.Rescaling(16.0)])
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    losses = model.fit(x, labels, batch_size=12, epochs=60, verbose=0).history["loss"]
    assert losses[-1] < 0.05 * losses[0]
    np.testing.assert_array_equal(np.argmax(model(x), axis=1), labels)
    assert 0 < np.mean(encoder(x).numpy() == 0) < 1


LOAD_ALONE = """
import pathlib, sys
import keras, numpy as np

def check(path):
    saved = np.load(path.with_suffix(".npz"))
    model = keras.models.load_model(path)
    np.testing.assert_array_equal(model(saved["examples"]), saved["output"], err_msg=path.name)

encoders = sorted(pathlib.Path("encoders").glob("*.keras"))
for path in encoders:
    check(path)
assert not any(x.split(".")[0] == "sparse_embed" for x in sys.modules)

import sparse_embed.models  # registers the classes: Keras itself imports no other package's
check(pathlib.Path("training.keras"))
print(len(encoders), "encoders")
"""


def test_saved_models_load_in_a_new_process_with_equal_embeddings(tmp_path):
    """Encoders load where nothing of sparse_embed is imported; our own layers after the import."""
    rng = np.random.default_rng(3)

    def save(model, path):
        x = noise(4, model.input_shape[1:])
        # No weight may keep its initial value; the forward pass moves the moving averages.
        for weight in model.trainable_variables:
            weight.assign_add(rng.normal(scale=0.02, size=weight.shape))
        model(x, training=True)
        y = model(x).numpy()
        assert np.all(np.isfinite(y))
        assert np.any(y)
        model.save(path)
        np.savez(path.with_suffix(".npz"), examples=x, output=y)

    (tmp_path / "encoders").mkdir()
    # Every architecture, and every activation: the head is the same for all of them.
    cases = [(name, ACTIVATIONS[i % 3]) for i, name in enumerate(NAMES)]
    cases += [("convnet", activation) for activation in ACTIVATIONS[1:]]
    for name, activation in cases:
        save(narrow(name, activation), tmp_path / "encoders" / f"{name}-{activation}.keras")

    encoder = narrow("convnet", "none")
    outputs = ArcFaceHead(5)(SoftThreshold(0.125)(encoder.output))
    save(keras.Model(encoder.input, outputs), tmp_path / "training.keras")

    run = subprocess.run(
        [sys.executable, "-c", LOAD_ALONE], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == f"{len(cases)} encoders"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"name": "vgg"},
            "name='vgg': expected one of convnet, haarnet, linear, mobilefacenet, nin, resn",
        ),
        ({"activation": "gelu"}, "activation='gelu': expected one of relu, soft_threshold, none"),
        ({"activation": None}, "activation=None: expected one of relu, soft_threshold, none"),
        ({"embedding_dim": 0}, "embedding_dim=0: expected an integer >= 1"),
        ({"embedding_dim": 1.5}, "embedding_dim=1.5: expected an integer >= 1"),
        ({"initial_probability": 0}, "initial_probability=0: expected a finite number > 0"),
        ({"width": 0}, "width=0: expected a finite number > 0"),
        ({"width": -1.0}, "width=-1.0: expected a finite number > 0"),
        ({"input_shape": (32, 32)}, r"input_shape=\(32, 32\): expected integers \(height, width, "),
        ({"input_shape": 32}, "input_shape=32: expected integers"),
        ({"input_shape": (None, None, 3)}, "input_shape=.None, None, 3.: expected integers"),
        ({"input_shape": (32, 32, 0)}, r"for convnet at least \(8, 8, 1\)"),
        ({"input_shape": (32, 7, 1)}, r"for convnet at least \(8, 8, 1\)"),
        (
            {"name": "linear"},
            r"input_shape=\(32, 32, 1\): expected integers \(dim,\), for linear at le",
        ),
        ({"name": "linear", "input_shape": (0,)}, r"for linear at least \(1,\)"),
    ],
)
def test_bad_arguments(changes, message):
    arguments = {
        "name": "convnet",
        "embedding_dim": 8,
        "activation": "relu",
        "input_shape": (32, 32, 1),
        "width": 0.25,
    }
    with pytest.raises(ValueError, match=message):
        build_encoder(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("convnet", 8),
        ("haarnet", 9),
        ("mobilefacenet", 16),
        ("nin", 4),
        ("resnet101", 16),
        ("resnet20", 4),
    ],
)
def test_smallest_image(name, side):
    """At the stated minimum the strides leave one place, and below it the error names it."""
    model = build_encoder(name, 8, "relu", (side, side, 1), width=1 / 32)
    maps = [layer.output.shape for layer in model.layers if len(layer.output.shape) == 4]
    assert maps[-1][1:3] == (1, 1)
    with pytest.raises(ValueError, match=rf"for {name} at least \({side}, {side}, 1\)"):
        build_encoder(name, 8, "relu", (side - 1, side, 1), width=1 / 32)
