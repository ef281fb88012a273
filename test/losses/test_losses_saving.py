"""Models with our layers, losses, schedule and metrics load in a new process."""

import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

from sparse_embed.losses import (
    ArcFaceLoss,
    FlopsRegularization,
    L1Regularization,
    QuadraticWarmup,
    SparsityMetrics,
    SparsityMonitor,
    TripletSemiHardLoss,
)

# All that a new process has to do: import what the file names, as Keras (since 3.9) imports
# nothing outside its own packages while it reads a file.
SCRIPT = """
    import pathlib
    import sys
    import keras
    import numpy as np
    import sparse_embed.losses

    folder = pathlib.Path(sys.argv[1])
    x = np.load(folder / "x.npy")
    triplet = keras.models.load_model(folder / "triplet.keras")
    np.save(folder / "embeddings.npy", triplet(x))
    assert type(triplet.loss).__name__ == "TripletSemiHardLoss" and triplet.loss.margin == 0.7
    schedule = triplet.get_layer("flops").weight
    assert type(schedule).__name__ == "QuadraticWarmup"
    assert (schedule.weight, schedule.steps) == (2.5, 8)
    assert (triplet.get_layer("l1").weight, triplet.get_layer("l1").scope) == (0.25, "replica")
    arcface = keras.models.load_model(folder / "arcface.keras")
    np.save(folder / "cosines.npy", arcface(x))
    assert (arcface.loss.margin, arcface.loss.scale) == (0.25, 16.0)
    logs = triplet.fit(x, np.arange(len(x)) % 3, batch_size=len(x), verbose=0).history
    np.save(folder / "weight.npy", logs["flops_weight"])
    np.save(folder / "flops.npy", [logs["m_flops_per_row"], logs["sparsity_flops_per_row"]])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds two trained models, and what a new process made of them."""
    folder = tmp_path_factory.mktemp("saving")
    x = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    np.save(folder / "x.npy", x)

    inputs = keras.Input((5,))
    y = keras.layers.Dense(8, activation="relu")(inputs)
    y = keras.layers.UnitNormalization()(y)
    y = FlopsRegularization(QuadraticWarmup(2.5, steps=8))(y)
    y = L1Regularization(0.25, scope="replica")(y)
    triplet = keras.Model(inputs, SparsityMonitor()(y))
    triplet.compile("sgd", TripletSemiHardLoss(0.7), metrics=[SparsityMetrics(8, name="m")])
    triplet.fit(x, np.arange(12) % 3, batch_size=4, verbose=0)  # three steps
    triplet.save(folder / "triplet.keras")
    np.save(folder / "expected_embeddings.npy", triplet(x))

    arcface = keras.Model(inputs, keras.layers.Dense(3, activation="tanh")(y))
    arcface.compile("sgd", ArcFaceLoss(0.25, 16.0))
    arcface.save(folder / "arcface.keras")
    np.save(folder / "expected_cosines.npy", arcface(x))

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.parametrize("output", ["embeddings", "cosines"])
def test_outputs_are_bit_equal(folder, output):
    expected = np.load(folder / f"expected_{output}.npy")
    assert np.any(expected)
    np.testing.assert_array_equal(np.load(folder / f"{output}.npy"), expected)


def test_training_goes_on_with_the_schedule_and_the_metrics(folder):
    """After three steps, the next has lambda = 2.5 (3/8)^2."""
    np.testing.assert_allclose(np.load(folder / "weight.npy"), [2.5 * (3 / 8) ** 2])
    active = np.load(folder / "expected_embeddings.npy") != 0
    flops = np.sum(active.mean(axis=0) ** 2)
    np.testing.assert_allclose(np.load(folder / "flops.npy"), [[flops], [flops]])
