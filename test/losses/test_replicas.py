"""N replicas with batch B must give the loss and the gradients of one replica with batch N * B."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

REPLICAS = pytest.mark.parametrize("replicas", [2, 4])
GLOBAL = [
    "flops",
    "l1",
    "arcface",
    "triplet",
    "sdh",
    "contrast",
    "flops and l1, uneven",
    "target, uneven",
    "df_flops and l1, uneven",
    "flops and l1, empty replicas",
    "flops and triplet",
    "l1 and arcface",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("replicas") / "results.pickle"
    script = pathlib.Path(__file__).with_name("replica_runs.py")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, str(script), str(path)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return pickle.loads(path.read_bytes())


@REPLICAS
@pytest.mark.parametrize("objective", GLOBAL)
def test_loss_and_every_gradient_equal_those_of_one_replica(runs, objective, replicas):
    one, many = runs[objective, 1], runs[objective, replicas]
    assert one["loss"] > 0.01
    assert many["loss"] == pytest.approx(one["loss"], rel=1e-5, abs=1e-5)
    assert len(one["gradients"]) == len(many["gradients"]) >= 2
    for expected, gradient in zip(one["gradients"], many["gradients"], strict=True):
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)


@REPLICAS
def test_the_authors_scope_fails_this_test(runs, replicas):
    """Squaring each replica's own mean activations: another loss, other gradients, by far."""
    one, many = runs["flops", 1], runs["flops, scope=replica", replicas]
    assert many["loss"] > one["loss"] + 0.01  # the square is convex
    differences = [
        np.abs(a - b).max() for a, b in zip(one["gradients"], many["gradients"], strict=True)
    ]
    assert max(differences) > 0.01


def test_the_authors_scope_depends_on_the_number_of_replicas(runs):
    losses = [runs["flops, scope=replica", replicas]["loss"] for replicas in (1, 2, 4)]
    assert losses[0] == pytest.approx(runs["flops", 1]["loss"])
    assert losses[0] < losses[1] < losses[2]


def test_logs_equal_those_of_one_replica(runs):
    """Weight, penalty and sparsity figures of training and validation, over two epochs."""
    one, two = runs["schedule", 1]["logs"], runs["schedule", 2]["logs"]
    assert set(one) == set(two)
    assert {"flops_weight", "flops_penalty", "sparsity_flops_per_row"} <= set(one)
    # Keras averages ArcFace over each replica's examples first, and over replicas then: not the
    # same for a last batch of one example. All else is.
    for key in set(one) - {"val_loss"}:
        np.testing.assert_allclose(two[key], one[key], rtol=1e-4, err_msg=key)


@pytest.mark.parametrize("replicas", [1, 2])
def test_steps_are_counted_once(runs, replicas):
    """Six steps; lambda = 4 (t/4)^2 is 1 at t = 2, the last of epoch 1, and 4 at t = 5."""
    assert runs["schedule", replicas]["step"] == 6
    np.testing.assert_allclose(runs["schedule", replicas]["logs"]["flops_weight"], [1.0, 4.0])
