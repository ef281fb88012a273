"""Our layers under half precision: Keras' own test of a layer, and values computed with NumPy."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.testing import TestCase

from sparse_embed import losses, models
from sparse_embed.losses import (
    DFFlopsRegularization,
    FlopsRegularization,
    L1Regularization,
    MaskedFlopsRegularization,
    QuadraticWarmup,
    SparsityMonitor,
    TargetFlops,
)
from sparse_embed.models import ArcFaceHead, KeepLargest, SoftThreshold

PENALTIES = [
    FlopsRegularization,
    L1Regularization,
    DFFlopsRegularization,
    MaskedFlopsRegularization,
]
HALF = pytest.mark.parametrize("half", ["float16", "bfloat16"])

# --- Keras' own test: building, saving, shapes, dtypes, mixed precision, a step of `fit`

LAYERS = [
    *((cls, {"weight": weight}) for cls in PENALTIES for weight in (2.0, QuadraticWarmup(2.0, 3))),
    *((cls, {"weight": TargetFlops(1.0), "scope": "replica"}) for cls in PENALTIES),
    (SparsityMonitor, {}),
    (SoftThreshold, {"threshold": 0.25}),
    (KeepLargest, {"k": 2, "anneal_steps": 3}),
    (ArcFaceHead, {"num_classes": 5}),
]


def exported_layers():
    """What `losses` and `models` export for use: without the base class, whose penalty is open."""
    found = [getattr(package, name) for package in (losses, models) for name in package.__all__]
    layers = {kind for kind in found if isinstance(kind, type)}
    layers = {kind for kind in layers if issubclass(kind, keras.layers.Layer)}
    return layers - {losses.ActivationRegularization}


def test_every_layer_is_tested():
    assert {cls for cls, _ in LAYERS} == exported_layers()


@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("cls", "arguments"), LAYERS)
def test_layer_passes_the_test_of_keras(cls, arguments, training):
    TestCase().run_layer_test(
        cls,
        arguments,
        input_shape=(4, 6),
        call_kwargs={"training": training},
        expected_output_shape=(4, 5) if cls is ArcFaceHead else (4, 6),
        expected_num_losses=int(training and cls in PENALTIES),
        run_training_check=training,
    )


# --- values


def batches(half, steps=7, rows=40, dimensions=6):
    """Sparse rows as they come in half precision, and before they were rounded to it."""
    rng = np.random.default_rng(5)
    for step in range(steps):
        active = rng.random((rows, dimensions)) < np.linspace(0.05, 0.9 - 0.05 * step, dimensions)
        exact = (rng.normal(size=(rows, dimensions)) * active).astype(np.float32)
        yield tf.cast(exact, half), exact


def make(cls, weight, **more):
    own = {DFFlopsRegularization: {"df_cutoff": 0.3, "df_steepness": 4.0}}
    own[MaskedFlopsRegularization] = {"l0_mask": 2}
    return cls(weight, **own.get(cls, {}), **more)


def penalties_by_hand(cls, x):
    """Penalties of consecutive steps in float32 NumPy; DF-FLOPS renews its weights every third."""
    weights = np.ones(x[0].shape[1], np.float32)
    for step, rows in enumerate(np.abs(x)):
        if cls is MaskedFlopsRegularization:
            rows = rows * ((rows != 0).sum(axis=1, keepdims=True) > 2)
        mean = rows.sum(axis=0) / np.float32(len(rows))
        yield mean.sum() if cls is L1Regularization else (weights * mean * mean).sum()
        if cls is DFFlopsRegularization and step % 3 == 2:
            share = (x[step - 2 : step + 1] != 0).mean(axis=(0, 1))
            with np.errstate(divide="ignore"):
                power = share ** (math.log(2) / math.log(0.3))
            weights = (1 / (1 + (power - 1) ** 4)).astype(np.float32)


@HALF
@pytest.mark.parametrize("cls", PENALTIES)
def test_penalty_of_half_precision_is_that_of_float32(cls, half, monkeypatch):
    """Of what came in half precision exactly; of what was rounded to it, as closely as it was."""
    monkeypatch.setattr(DFFlopsRegularization, "REFRESH", 3)
    layer, found, given = make(cls, 2.0, dtype=f"mixed_{half}"), [], list(batches(half))
    for rounded, _ in given:
        passed = layer(rounded, training=True)
        assert passed.dtype == half
        np.testing.assert_array_equal(passed, rounded)
        assert layer.losses[0].dtype == tf.float32
        found.append(float(layer.losses[0]))
    came = np.stack([tf.cast(rounded, tf.float32) for rounded, _ in given])
    np.testing.assert_allclose(found, np.multiply(2, list(penalties_by_hand(cls, came))), rtol=1e-5)
    before = np.stack([exact for _, exact in given])
    assert (before != came).any()
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[half]  # largest relative error of rounding
    expected = np.multiply(2, list(penalties_by_hand(cls, before)))
    np.testing.assert_allclose(found, expected, rtol=2.1 * unit)


@HALF
@pytest.mark.parametrize("cls", PENALTIES)
def test_state_of_half_precision_is_that_of_float32(cls, half, monkeypatch):
    """Counts, averages, controller: they see which values are zero, which rounding keeps."""
    monkeypatch.setattr(DFFlopsRegularization, "REFRESH", 3)
    weight = TargetFlops(0.5, weight=3.0, steps=4)
    mixed, full = make(cls, weight, dtype=f"mixed_{half}"), make(cls, weight)
    for rounded, exact in batches(half):
        mixed(rounded, training=True)
        full(exact, training=True)
    states = {variable.name: variable.numpy() for variable in full.variables}
    assert states.keys() >= {"step", "controller"}
    assert (cls is DFFlopsRegularization) == ("dimension_weights" in states)
    own = {variable.name: variable.numpy() for variable in mixed.non_trainable_weights}
    assert own.keys() == {variable.name for variable in full.non_trainable_weights}
    for name, value in own.items():
        assert value.dtype == states[name].dtype
        np.testing.assert_array_equal(value, states[name], err_msg=name)


@HALF
def test_averages_in_the_logs_do_not_stop_at_the_largest_count_of_half_precision(half):
    """Counted in half precision, 2,049 examples are 2,048, and 257 are 256."""
    rows = np.zeros((2049, 2), np.float32)
    rows[:, 0] = 1
    rows[0, 1] = 1
    layer = FlopsRegularization(1.0, dtype=f"mixed_{half}")
    monitor = SparsityMonitor(dtype=f"mixed_{half}")
    for _ in range(3):
        layer(monitor(tf.cast(rows, half)), training=True)
    logs = {metric.name: metric.result() for metric in layer.metrics}
    expected = 1 + 2049.0**-2
    assert float(logs["flops_penalty"]) == pytest.approx(expected, rel=1e-6)
    assert float(logs["flops_loss"]) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(monitor.probabilities(), [1, 1 / 2049], rtol=1e-12)


@HALF
@pytest.mark.parametrize("cls", [KeepLargest, ArcFaceHead])
def test_layers_that_compute_in_float32_do_so_under_every_policy(cls, half):
    """On the rows that came; the class weights, too, are those of float32."""
    rng = np.random.default_rng(2)
    rows = tf.cast(rng.normal(size=(5, 8)), half)
    arguments = (3, 2) if cls is KeepLargest else (4,)
    mixed, full = (cls(*arguments, dtype=policy) for policy in (f"mixed_{half}", "float32"))
    came = tf.cast(rows, tf.float32)
    full(came)
    mixed(rows)
    mixed.set_weights(full.get_weights())
    found = mixed(rows)
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, full(came))
