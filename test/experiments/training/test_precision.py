"""Half precision from end to end: the backbone computes in it; what is kept is float32."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed import losses, models
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import Run

BFLOAT16 = "mixed_bfloat16"


def script(name, *arguments):
    command = [sys.executable, "-m", f"sparse_embed.experiments.{name}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A short run on glyphs in bfloat16, and its embeddings."""
    folder = tmp_path_factory.mktemp("bfloat16") / "run"
    flags = ["--steps=6", "--batch_size=16", "--width=0.25", "--embedding_dim=64"]
    flags += ["--warmup_steps=3", "--initial_probability=0.2", "--summary_every=3"]
    script(
        "train",
        *flags,
        "--validation=4",
        "--test=20",
        "--precision",
        BFLOAT16,
        "--model_dir",
        folder,
    )
    script("embed", "--model_dir", folder, "--views=1", "--output", folder / "test.npz")
    return folder


def test_training_is_recorded_in_full_precision(folder):
    curves = json.loads((folder / "train.json").read_text())["curves"]
    assert [row["step"] for row in curves] == [3, 6]
    for row in curves:
        assert all(np.isfinite(value) for value in row.values())
        # Neither is a number with the 8 bits of a bfloat16.
        for name in ("penalty", "sparsity_relaxed_flops"):
            assert float(tf.cast(row[name], tf.bfloat16)) != row[name]
    assert curves[-1]["regularizer_weight"] == pytest.approx(30)


def test_embeddings_are_unit_float32_with_exact_zeros(folder):
    found = embedding_files.load(folder / "test.npz").vectors
    assert found.dtype == np.float32
    assert 0 < found.nnz < 0.5 * np.prod(found.shape)
    assert (found.data != 0).all()
    norms = np.sqrt(np.asarray(found.multiply(found).sum(axis=1)).ravel())
    np.testing.assert_allclose(norms[norms > 0], 1, atol=1e-5)
    assert "recall@1" in script("search", "--database", folder / "test.npz")


def test_saved_encoder_computes_as_it_was_trained(folder):
    encoder = Run.open(folder).encoder()
    kinds = {layer.compute_dtype for layer in encoder.layers if "conv2d" in layer.name}
    assert kinds == {"bfloat16"}
    assert {weight.dtype for weight in encoder.weights} == {"float32"}
    assert encoder.output.dtype == "float32"
    images = np.random.default_rng(0).random((8, *encoder.input_shape[1:]), np.float32)
    before = encoder(images, training=False).numpy()
    encoder.save(folder / "again.keras")
    after = keras.models.load_model(folder / "again.keras")(images, training=False).numpy()
    np.testing.assert_array_equal(before, after)


@pytest.fixture
def policy():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(BFLOAT16)
    yield
    keras.config.set_dtype_policy(before)


@pytest.mark.parametrize(
    ("layer", "formula"),
    [
        (losses.FlopsRegularization, lambda a: (np.abs(a).mean(axis=0) ** 2).sum()),
        (losses.L1Regularization, lambda a: np.abs(a).sum(axis=1).mean()),
    ],
)
def test_penalties_and_the_monitor_are_float32(policy, layer, formula):
    """A sum in bfloat16 would be off by some thousandths."""
    keras.utils.set_random_seed(0)
    encoder = models.build_encoder("convnet", 64, "relu", (16, 16, 1), width=0.25)
    images = np.random.default_rng(0).random((64, 16, 16, 1), np.float32)
    embeddings = encoder(images, training=False)
    assert embeddings.dtype == tf.float32
    exact = embeddings.numpy().astype(np.float64)
    assert (exact == 0).mean() > 0.2
    penalize, monitor = layer(1.0), losses.SparsityMonitor()
    passed = penalize(monitor(embeddings), training=True)
    np.testing.assert_array_equal(passed, embeddings)
    (loss,) = penalize.losses
    assert loss.dtype == tf.float32
    assert float(loss) == pytest.approx(formula(exact), rel=1e-6)
    np.testing.assert_allclose(monitor.probabilities(), (exact != 0).mean(axis=0), rtol=1e-12)
