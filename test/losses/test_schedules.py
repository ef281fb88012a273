import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.losses import QuadraticWarmup

# lambda(t) = 200 min(1, t / 1000)^2, by hand.
VALUES = {0: 0.0, 100: 2.0, 500: 50.0, 1000: 200.0, 1001: 200.0, 230_000: 200.0}


def test_python_steps_give_python_floats():
    schedule = QuadraticWarmup(200.0, steps=1000)
    for step, expected in VALUES.items():
        assert schedule(step) == pytest.approx(expected, rel=1e-12)
        assert isinstance(schedule(step), float)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.float32])
def test_tensor_steps_also_in_a_graph(dtype):
    schedule = QuadraticWarmup(200.0, steps=1000)
    steps = tf.constant(list(VALUES), dtype)
    for function in (schedule, tf.function(schedule)):
        np.testing.assert_allclose(function(steps), list(VALUES.values()), rtol=1e-6)


def test_variable_steps():
    schedule = QuadraticWarmup(200.0, steps=1000)
    assert float(schedule(tf.Variable(500, dtype=tf.int64))) == 50.0
    assert float(schedule(keras.Variable(500, dtype="int64"))) == 50.0
    assert float(schedule(np.int64(500))) == 50.0


def test_config_round_trip():
    schedule = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(QuadraticWarmup(1.5, steps=7))
    )
    assert isinstance(schedule, QuadraticWarmup)
    assert (schedule.weight, schedule.steps) == (1.5, 7)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), "big"])
def test_bad_weight(weight):
    with pytest.raises(ValueError, match=r"weight=.*expected a finite number >= 0"):
        QuadraticWarmup(weight, steps=10)


@pytest.mark.parametrize("steps", [0, -5, 2.5, float("nan")])
def test_bad_steps(steps):
    with pytest.raises(ValueError, match=r"steps=.*expected an integer >= 1"):
        QuadraticWarmup(1.0, steps=steps)
