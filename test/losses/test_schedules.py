import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.losses import QuadraticWarmup, WeightPath

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


# 10 min(1, t / 100)^2 up to step 1000, then 20 up to step 1500, then 80, by hand.
PATH = {0: 0.0, 50: 2.5, 100: 10.0, 999: 10.0, 1000: 20.0, 1499: 20.0, 1500: 80.0, 9999: 80.0}


def test_path_raises_the_weight_from_stage_to_stage():
    path = WeightPath([10, 20, 80], ends=[1000, 1500], warmup_steps=100)
    for step, expected in PATH.items():
        assert path(step) == pytest.approx(expected, rel=1e-12)
        assert float(tf.function(path)(tf.Variable(step, dtype=tf.int64))) == expected
    np.testing.assert_allclose(path(tf.constant(list(PATH))), list(PATH.values()), rtol=1e-6)
    again = WeightPath.from_config(path.get_config())
    assert again.get_config() == path.get_config()


def test_path_of_one_stage_is_a_warmup():
    path, warmup = WeightPath([200.0], [], warmup_steps=1000), QuadraticWarmup(200.0, steps=1000)
    steps = tf.range(0, 1200, 50)
    np.testing.assert_array_equal(path(steps), warmup(steps))


@pytest.mark.parametrize(
    ("weights", "ends", "message"),
    [
        ([10, 10], [5], "weights=.*expected increasing"),
        ([-1, 10], [5], "weights=-1: expected a finite number >= 0"),
        ([1, 2, 3], [5, 5], "ends=.*expected increasing"),
        ([1, 2], [], "ends=.*expected one less"),
    ],
)
def test_bad_path(weights, ends, message):
    with pytest.raises(ValueError, match=message):
        WeightPath(weights, ends, warmup_steps=1)
