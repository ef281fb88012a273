import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparse_embed.losses import (
    DFFlopsRegularization,
    FlopsRegularization,
    L1Regularization,
    QuadraticWarmup,
    l1_norm,
    relaxed_flops,
)

BOTH = pytest.mark.parametrize("cls", [FlopsRegularization, L1Regularization])

matrices = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 7), st.integers(1, 9)),
    elements=st.floats(-10, 10, allow_subnormal=False),
)


def numpy_relaxed_flops(a):
    n, d = a.shape
    return sum((sum(abs(a[i, j]) for i in range(n)) / n) ** 2 for j in range(d))


def numpy_l1(a):
    return np.abs(a).sum() / len(a)


# --- the functions


@given(matrices)
def test_functions_are_their_definitions(a):
    np.testing.assert_allclose(relaxed_flops(a), numpy_relaxed_flops(a), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(l1_norm(a), numpy_l1(a), rtol=1e-12, atol=1e-300)


def test_functions_by_hand():
    """Columns (1, -3), (0, 2): mean absolute activations 2 and 1: F~ = 4 + 1, l1 = 2 + 1."""
    a = np.array([[1.0, 0.0], [-3.0, 2.0]], np.float32)
    assert float(relaxed_flops(a)) == 5.0
    assert float(l1_norm(a)) == 3.0


def test_functions_of_zero_and_of_all_active_input():
    """Zero costs nothing. If all values are 1/sqrt(d), F~ = d (1/sqrt(d))^2 = 1, l1 = sqrt(d)."""
    assert float(relaxed_flops(np.zeros((5, 3)))) == 0.0
    assert float(l1_norm(np.zeros((5, 3)))) == 0.0
    active = np.full((6, 16), 0.25)
    assert float(relaxed_flops(active)) == pytest.approx(1.0)
    assert float(l1_norm(active)) == pytest.approx(4.0)


def test_half_precision_input_is_summed_in_float32():
    """The sum of 70,000 ones is infinite in float16."""
    ones = np.ones((70_000, 1), np.float16)
    assert relaxed_flops(ones).dtype == tf.float32
    assert float(relaxed_flops(ones)) == 1.0
    assert float(l1_norm(ones)) == 1.0


@pytest.mark.parametrize("function", [relaxed_flops, l1_norm])
def test_functions_want_a_matrix(function):
    with pytest.raises(ValueError, match=r"\(2, 3, 4\): expected \(batch, dimensions\)"):
        function(np.zeros((2, 3, 4)))


def test_gradients():
    """d F~/d a_ij = 2 abar_j sgn(a_ij) / n, d l1/d a_ij = sgn(a_ij) / n; 0 at 0, where ReLU is."""
    a = np.random.default_rng(0).normal(size=(6, 4))
    a[0] = 0.0
    x = tf.constant(a)
    for function, slope in (
        (relaxed_flops, 2 * np.abs(a).mean(axis=0) / len(a)),
        (l1_norm, np.full(4, 1 / len(a))),
    ):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        np.testing.assert_allclose(tape.gradient(value, x), slope * np.sign(a), rtol=1e-12)


# --- the identities of section 4


@given(matrices)
def test_orthogonality_identity(a):
    """For unit-norm rows, F~ is the mean dot product of absolute rows over all ordered pairs."""
    norms = np.linalg.norm(a, axis=1, keepdims=True)
    a = np.where(norms > 1e-6, a / np.maximum(norms, 1e-6), np.eye(a.shape[1])[0])
    n = len(a)
    pairs = [np.dot(np.abs(a[p]), np.abs(a[q])) for p in range(n) for q in range(n)]
    np.testing.assert_allclose(relaxed_flops(a), np.mean(pairs), rtol=1e-10)
    # The n pairs of a row with itself give 1/n: the bound reached by orthogonal rows.
    assert float(relaxed_flops(a)) >= 1 / n - 1e-12


@given(st.integers(1, 8))
def test_one_hot_vectors_reach_the_bound(d):
    assert float(relaxed_flops(np.eye(d))) == pytest.approx(1 / d)


@given(matrices)
def test_exclusive_lasso_identity(a):
    """n^2 F~ is the exclusive lasso, sum over groups of ||w_g||_1^2, the groups being columns."""
    groups = [a[:, j] for j in range(a.shape[1])]
    lasso = sum(np.linalg.norm(group, 1) ** 2 for group in groups)
    np.testing.assert_allclose(len(a) ** 2 * relaxed_flops(a), lasso, rtol=1e-10, atol=1e-300)


# --- the layers


@pytest.mark.parametrize(
    ("cls", "function"),
    [(FlopsRegularization, numpy_relaxed_flops), (L1Regularization, numpy_l1)],
)
def test_layer_passes_its_input_and_adds_the_weighted_penalty(cls, function):
    x = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
    layer = cls(3.0)
    np.testing.assert_array_equal(layer(x, training=True), x)
    (loss,) = layer.losses
    assert float(loss) == pytest.approx(3.0 * function(x), rel=1e-6)


@BOTH
def test_layer_adds_nothing_outside_training(cls):
    layer = cls(3.0)
    layer(np.ones((2, 3), np.float32), training=True)
    layer(np.ones((2, 3), np.float32))
    assert layer.losses == []
    assert int(layer.step) == 1


@BOTH
def test_layer_follows_its_schedule_from_step_zero(cls):
    """Penalty of one row (1, 0): 1 for both. lambda = 8 (t/4)^2 at t = 0, 1, 2, ..."""
    layer = cls(QuadraticWarmup(8.0, steps=4))
    losses = []
    for _ in range(6):
        layer(np.array([[1.0, 0.0]], np.float32), training=True)
        losses.append(float(layer.losses[0]))
    np.testing.assert_allclose(losses, [0.0, 0.5, 2.0, 4.5, 8.0, 8.0])


def test_any_function_of_the_step_is_a_schedule():
    layer = FlopsRegularization(keras.optimizers.schedules.PolynomialDecay(1.0, 2, 0.0))
    losses = []
    for _ in range(3):
        layer(np.ones((1, 1), np.float32), training=True)
        losses.append(float(layer.losses[0]))
    np.testing.assert_allclose(losses, [1.0, 0.5, 0.0])


def test_gradient_reaches_the_layers_before():
    """With y = w x and x = (1, 3): d/dw 5 (mean |w x|)^2 = 5 * 2 w 2^2 = 80 at w = 2."""
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(2))
    model = keras.Sequential([keras.Input((1,)), dense, FlopsRegularization(5.0)])
    with tf.GradientTape() as tape:
        model(np.array([[1.0], [3.0]], np.float32), training=True)
        loss = tf.add_n(model.losses)
    assert float(loss) == pytest.approx(5.0 * 16.0)
    assert float(tape.gradient(loss, dense.kernel.value)[0, 0]) == pytest.approx(80.0)


def test_mixed_precision_leaves_the_input_and_the_penalty_in_float32():
    layer = FlopsRegularization(1.0, dtype="mixed_float16")
    x = np.array([[1e-6, 300.0]], np.float32)  # 1e-6 is subnormal, 300^2 infinite in float16
    inputs = keras.Input((2,), dtype="float32")
    assert layer(inputs).dtype == "float32"
    y = layer(x, training=True)
    assert y.dtype == tf.float32
    np.testing.assert_array_equal(y, x)
    assert layer.losses[0].dtype == tf.float32
    assert float(layer.losses[0]) == pytest.approx(90_000.0)

    layer(x.astype(np.float16), training=True)
    assert float(layer.losses[0]) == pytest.approx(90_000.0)


@BOTH
def test_empty_batch_costs_nothing(cls):
    """A replica's share of the last batch of an epoch may be empty."""
    layer = cls(1.0)
    layer(np.zeros((0, 3), np.float32), training=True)
    assert float(layer.losses[0]) == 0.0


def regularized_model(weight):
    """An identity model: the penalty of its output is that of its input."""
    inputs = keras.Input((2,))
    model = keras.Model(inputs, FlopsRegularization(weight)(inputs))
    scale = keras.layers.Dense(2, kernel_initializer="identity")
    outputs = scale(model(inputs))  # the layer sits in a model within the model
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


def test_weight_and_penalty_in_the_logs_of_fit():
    """Batches of rows (a, 0): penalty a^2. Logs: its mean over the epoch, and the last weight.

    Epoch 1 has the batches a = 1, 2 at t = 0, 1; epoch 2 the same at t = 2, 3. With lambda =
    (t/2)^2 up to t = 2, lambda = 0, 0.25, 1, 1; the mean squared error is 0. The validation batches
    are a = 3.
    """
    model = regularized_model(QuadraticWarmup(1.0, steps=2))
    x = np.array([[1.0, 0.0]] * 2 + [[2.0, 0.0]] * 2, np.float32)
    val = np.array([[3.0, 0.0]] * 4, np.float32)
    history = model.fit(
        x, x, batch_size=2, epochs=2, shuffle=False, verbose=0, validation_data=(val, val)
    ).history
    np.testing.assert_allclose(history["flops_penalty"], [2.5, 2.5])
    np.testing.assert_allclose(history["flops_weight"], [0.25, 1.0])
    np.testing.assert_allclose(history["loss"], [(0 * 1 + 0.25 * 4) / 2, (1 + 4) / 2])
    np.testing.assert_allclose(history["flops_loss"], history["loss"], rtol=1e-6)
    assert history["val_flops_loss"] == [0.0, 0.0]
    np.testing.assert_allclose(history["val_flops_penalty"], [9.0, 9.0])
    np.testing.assert_allclose(history["val_flops_weight"], [1.0, 1.0])
    np.testing.assert_allclose(history["val_loss"], [0.0, 0.0], atol=1e-12)


def test_averages_are_over_examples_as_those_of_the_loss():
    """Batches of 2 rows (1, 0) and of 1 row (4, 0): (2 * 1 + 1 * 16) / 3 = 6."""
    model = regularized_model(3.0)
    x = np.array([[1.0, 0.0], [1.0, 0.0], [4.0, 0.0]], np.float32)
    history = model.fit(x, x, batch_size=2, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["flops_penalty"], [6.0])
    np.testing.assert_allclose(history["flops_loss"], [18.0])
    np.testing.assert_allclose(history["loss"], [18.0])


def test_schedule_goes_on_after_a_restart(tmp_path):
    model = regularized_model(QuadraticWarmup(1.0, steps=4))
    x = np.array([[1.0, 0.0]] * 2, np.float32)
    model.fit(x, x, batch_size=1, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    history = again.fit(x, x, batch_size=1, verbose=0).history
    np.testing.assert_allclose(history["flops_weight"], [(3 / 4) ** 2])


def test_two_layers_of_one_kind_need_names():
    inputs = keras.Input((2,))
    first, second = FlopsRegularization(1.0, name="wide"), FlopsRegularization(2.0, name="narrow")
    model = keras.Model(inputs, second(first(inputs)))
    model(np.array([[1.0, 0.0]], np.float32), training=True)
    assert sorted(float(loss) for loss in model.losses) == [1.0, 2.0]
    names = {metric.name for metric in model.metrics}
    assert names >= {"wide_weight", "wide_penalty", "narrow_weight", "narrow_penalty"}


@BOTH
@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf"), None])
def test_bad_weight(cls, weight):
    with pytest.raises(ValueError, match=r"weight=.*expected a finite number >= 0"):
        cls(weight)


@BOTH
def test_bad_scope(cls):
    with pytest.raises(ValueError, match="scope='batch': expected one of global, replica"):
        cls(1.0, scope="batch")


@BOTH
def test_config_round_trip(cls):
    layer = cls(QuadraticWarmup(2.0, steps=5), scope="replica", name="other")
    again = cls.from_config(layer.get_config())
    assert (again.weight.weight, again.weight.steps) == (2.0, 5)
    assert (again.scope, again.name) == ("replica", "other")
    assert cls.from_config(cls(2.5).get_config()).weight == 2.5


def test_dimensions_weigh_alike_until_their_weights_are_renewed():
    """After 100 steps those of rare dimensions fall; the penalty of the 101st sees it."""
    layer = DFFlopsRegularization(1.0, df_cutoff=0.3)
    rows = np.eye(4, 2, dtype=np.float32)  # each dimension in a quarter of the rows
    penalties = []
    for _ in range(101):
        layer(rows, training=True)
        penalties.append(float(layer.losses[-1]))
    np.testing.assert_allclose(penalties[:100], 2 / 16)
    renewed = float(layer.weights_of(np.float32(0.25)))
    assert renewed < 0.5
    np.testing.assert_allclose(penalties[100], 2 / 16 * renewed, rtol=1e-5)
