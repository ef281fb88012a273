import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.models import (
    ArcFaceHead,
    KeepLargest,
    SoftThreshold,
    embedding_head,
    l2_normalize,
)

RNG = np.random.default_rng(0)


@pytest.fixture
def dtype_policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


def head_model(features: int, dim: int, activation: str) -> keras.Model:
    inputs = keras.Input((features,))
    return keras.Model(inputs, embedding_head(inputs, dim, activation))


def gradient(function, x, upstream):
    """d<upstream, function(x)>/dx."""
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x) * upstream)
    return tape.gradient(y, x).numpy()


def test_l2_normalize_divides_by_the_norm():
    # 3-4-5: (3, 4) / 5; and along the other axis (3, 5, 4 and 12, 5, 13 by columns).
    np.testing.assert_allclose(l2_normalize(np.float32([[3, 4]])), [[0.6, 0.8]], rtol=1e-6)
    columns = np.float32([[3, 5], [4, 12]])
    np.testing.assert_allclose(
        l2_normalize(columns, axis=0), [[3 / 5, 5 / 13], [4 / 5, 12 / 13]], rtol=1e-6
    )


@pytest.mark.parametrize("length", [1e-8, 1e-3, 1.0, 1e6])
def test_l2_normalize_gradient(length):
    """For y = x / |x|: d<g, y>/dx = (g - <g, y> y) / |x|."""
    x, g = RNG.normal(size=(2, 5, 8)).astype(np.float32)
    x *= np.float32(length)
    norm = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    y = x / norm
    expected = (g - np.sum(g * y, axis=1, keepdims=True) * y) / norm
    np.testing.assert_allclose(gradient(l2_normalize, x, g) * length, expected * length, atol=1e-5)


def test_zero_vector_stays_zero_without_gradient():
    x = np.float32([[0, 0, 0], [0, 2, 0]])
    np.testing.assert_array_equal(l2_normalize(x), [[0, 0, 0], [0, 1, 0]])
    # The second row's gradient is (g - <g, y> y) / 2 with y = (0, 1, 0) and g = (1, 1, 1).
    np.testing.assert_allclose(
        gradient(l2_normalize, x, np.ones((2, 3), np.float32)), [[0, 0, 0], [0.5, 0, 0.5]]
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("value", [1e-5, 300.0])
def test_l2_normalize_leaves_half_precision(dtype, value):
    """Squared in float16, 1e-5 would be 0 and 300 would be infinite."""
    y = l2_normalize(tf.cast(np.full((1, 4), value), dtype))
    assert y.dtype == tf.float32
    np.testing.assert_allclose(y, np.full((1, 4), 0.5), rtol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "soft_threshold", "none"])
def test_head_against_numpy(activation):
    """Linear map, batch norm with known statistics, activation, unit norm: all once more."""
    model = head_model(6, 10, activation)
    gamma, beta, mean = RNG.normal(size=(3, 10))
    variance = RNG.uniform(0.5, 2, size=10)
    linear = RNG.normal(size=(6, 10))
    model.get_layer("embedding_linear").set_weights([linear])
    model.get_layer("embedding_norm").set_weights([gamma, beta, mean, variance])
    x = RNG.normal(size=(20, 6))

    z = gamma * (x @ linear - mean) / np.sqrt(variance + 1e-3) + beta
    if activation == "relu":
        z = np.maximum(z, 0)
    elif activation == "soft_threshold":
        z = np.sign(z) * np.maximum(np.abs(z) - 0.5, 0)
    expected = z / np.linalg.norm(z, axis=1, keepdims=True)

    y = model(x).numpy()
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), 1, atol=1e-6)
    if activation != "none":
        np.testing.assert_array_equal(y == 0, z == 0)
        assert 0.1 < np.mean(y == 0) < 0.9
    assert (y.min() < 0) == (activation != "relu")


def test_bias_is_the_knob_of_sparsity():
    """Paper, section 5: ReLU(x - lambda) is the sparser the larger lambda is."""
    model = head_model(16, 64, "relu")
    x = RNG.normal(size=(200, 16)).astype(np.float32)
    beta = model.get_layer("embedding_norm").beta
    active = []
    for bias in (1.0, 0.0, -1.0, -2.0):
        beta.assign(np.full(64, bias))
        active.append(np.mean(model(x).numpy() > 0))
    assert active[0] > active[1] > active[2] > active[3] > 0
    np.testing.assert_allclose(active[1], 0.5, atol=0.05)


@pytest.mark.parametrize("probability", [0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("activation", ["relu", "soft_threshold"])
def test_initial_probability(activation, probability):
    """Sums of many features are nearly Gaussian, and batch norm standardises them."""
    inputs = keras.Input((64,))
    model = keras.Model(inputs, embedding_head(inputs, 200, activation, probability))
    y = model(RNG.normal(size=(1000, 64)).astype(np.float32), training=True).numpy()
    np.testing.assert_allclose(np.mean(y != 0), probability, rtol=0.05)


@pytest.mark.parametrize("probability", [-0.5, 0, 1, 1.5, float("nan")])
def test_initial_probability_rejects(probability):
    with pytest.raises(ValueError, match=r"initial_probability=.*expected"):
        embedding_head(keras.Input((4,)), 8, "relu", probability)


def test_initial_probability_needs_an_activation():
    with pytest.raises(ValueError, match=r"initial_probability=0.1: .* got none"):
        embedding_head(keras.Input((4,)), 8, "none", 0.1)


@pytest.mark.parametrize("activation", ["relu", "soft_threshold"])
def test_head_without_any_active_dimension(activation):
    model = head_model(4, 8, activation)
    norm = model.get_layer("embedding_norm")
    norm.gamma.assign(np.zeros(8))
    norm.beta.assign(np.full(8, -0.4))  # below 0 for ReLU, within +-1/2 for the soft threshold
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    with tf.GradientTape() as tape:
        y = model(x, training=True)
        total = tf.reduce_sum(y)
    np.testing.assert_array_equal(y, np.zeros((3, 8)))
    for value in tape.gradient(total, model.trainable_variables):
        np.testing.assert_array_equal(value, np.zeros(value.shape))


@pytest.mark.parametrize("dtype_policy", ["mixed_float16", "mixed_bfloat16"], indirect=True)
def test_mixed_precision_ends_in_float32(dtype_policy):
    model = head_model(32, 64, "relu")
    assert model.get_layer("embedding_linear").compute_dtype == dtype_policy.removeprefix("mixed_")
    cosines = ArcFaceHead(5)
    x = RNG.normal(size=(10, 32)).astype(np.float32)
    with tf.GradientTape() as tape:
        y = model(x, training=True)
        c = cosines(y)
    assert y.dtype == c.dtype == tf.float32
    # Half precision would leave 1e-3 here.
    np.testing.assert_allclose(np.linalg.norm(y, axis=1), 1, atol=1e-6)
    w = cosines.class_weights.numpy()
    np.testing.assert_allclose(c, y.numpy() @ (w / np.linalg.norm(w, axis=0)), atol=1e-6)
    for value in tape.gradient(c, model.trainable_variables):
        assert np.all(np.isfinite(value))


def test_head_rejects_bad_arguments():
    features = keras.Input((4,))
    with pytest.raises(ValueError, match="embedding_dim=0: expected an integer >= 1"):
        embedding_head(features, 0, "relu")
    with pytest.raises(ValueError, match=r"activation='tanh'.*relu, soft_threshold, none"):
        embedding_head(features, 8, "tanh")


def test_soft_threshold_values_and_gradient():
    """sgn(x) max(|x| - 1/2, 0): slope 1 outside the dead zone, 0 within."""
    x = np.float32([-2, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 2])
    np.testing.assert_array_equal(
        SoftThreshold(0.5)(x), np.float32([-1.5, -0.25, 0, 0, 0, 0, 0, 0.25, 1.5])
    )
    np.testing.assert_array_equal(
        gradient(SoftThreshold(0.5), x, np.ones(9, np.float32)), [1, 1, 0, 0, 0, 0, 0, 1, 1]
    )
    np.testing.assert_array_equal(SoftThreshold(1.5)(x), np.float32([-0.5] + 7 * [0] + [0.5]))
    np.testing.assert_array_equal(SoftThreshold(0)(x), x)
    assert SoftThreshold().threshold == 0.5


@pytest.mark.parametrize("threshold", [-0.1, float("nan"), "half"])
def test_soft_threshold_rejects(threshold):
    with pytest.raises(ValueError, match=r"threshold=.*expected a finite number >= 0"):
        SoftThreshold(threshold)


def test_arcface_head_gives_cosines():
    """Class weights along (1, 0), (0, -1) and (1, 1), of different lengths, seen from (3, 4)."""
    head = ArcFaceHead(3)
    head.build((None, 2))
    assert head.class_weights.shape == (2, 3)
    head.class_weights.assign([[10, 0, 0.1], [0, -0.5, 0.1]])
    expected = [[0.6, -0.8, 1.4 / np.sqrt(2)]]
    np.testing.assert_allclose(head(np.float32([[0.6, 0.8]])), expected, atol=1e-6)
    np.testing.assert_allclose(head(np.float32([[3, 4]])), expected, atol=1e-6)
    np.testing.assert_array_equal(head(np.float32([[0, 0]])), [[0, 0, 0]])


def test_arcface_head_gradients_are_finite_and_orthogonal_to_the_weights():
    """Only a class weight's direction counts, so its gradient is orthogonal to it."""
    head = ArcFaceHead(7)
    x = l2_normalize(RNG.normal(size=(4, 16)).astype(np.float32)).numpy()
    x[0] = 0
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.square(head(x)))
    grad = tape.gradient(y, head.trainable_variables)[0].numpy()
    w = head.class_weights.numpy()
    assert np.all(np.isfinite(grad))
    assert np.all(np.linalg.norm(grad, axis=0) > 0)
    np.testing.assert_allclose(
        np.sum(grad * w, axis=0) / np.linalg.norm(grad, axis=0), 0, atol=1e-6
    )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_arcface_head_gradients_equal_those_of_float64(jit_compile):
    """Against NumPy's normalise-then-multiply in float64, by the chain rule through both norms."""
    x, g = RNG.normal(size=(6, 16)), RNG.normal(size=(6, 9))
    w = RNG.normal(size=(16, 9)) * np.geomspace(1e-6, 1e3, 9)  # columns of very different lengths
    w[:, 4] = 0
    x[2] = 0
    head = ArcFaceHead(9)
    head.build((None, 16))
    head.class_weights.assign(w)

    @tf.function(jit_compile=jit_compile)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = head(x)
            total = tf.reduce_sum(y * tf.constant(g, tf.float32))
        return y, *tape.gradient(total, [x, *head.trainable_variables])

    y, dx, dw = (value.numpy() for value in run(tf.constant(x, tf.float32)))

    def unit(v, axis):
        norm = np.linalg.norm(v, axis=axis, keepdims=True)
        return np.divide(v, norm, out=np.zeros_like(v), where=norm > 0), norm

    def through_norm(v, upstream, axis):
        u, norm = unit(v, axis)
        across = upstream - u * np.sum(upstream * u, axis=axis, keepdims=True)
        return np.divide(across, norm, out=np.zeros_like(v), where=norm > 0)

    rows, columns = unit(x, 1)[0], unit(w, 0)[0]
    expected = through_norm(w, rows.T @ g, 0)
    np.testing.assert_allclose(y, rows @ columns, atol=1e-6)
    np.testing.assert_allclose(dx, through_norm(x, g @ columns.T, 1), rtol=1e-4, atol=1e-5)
    scale = np.maximum(np.abs(expected).max(axis=0), 1e-30)
    np.testing.assert_allclose(dw / scale, expected / scale, atol=1e-5)
    assert np.all(dw[:, 4] == 0)
    assert np.all(dx[2] == 0)


def test_arcface_head_makes_no_needless_copy_of_the_class_weights():
    """The squares for the norms; the gradient of products and of norms, and their sum."""
    head = ArcFaceHead(31)
    head.build((None, 17))

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.square(head(x)))
        return tape.gradient(total, head.trainable_variables)

    graph = run.get_concrete_function(tf.TensorSpec((5, 17))).graph
    needed, left = set(), [value.op for value in graph.outputs]
    while left:  # what nothing needs, TensorFlow leaves out
        operation = left.pop()
        if operation.name not in needed:
            needed.add(operation.name)
            left += [value.op for value in operation.inputs]
    made = [
        operation.type
        for operation in graph.get_operations()
        if operation.name in needed
        and any(tuple(value.shape) in ((17, 31), (31, 17)) for value in operation.outputs)
    ]
    references = ("ReadVariableOp", "Identity", "IdentityN")  # of what is there already
    assert 1 < len([kind for kind in made if kind not in references]) <= 4


@pytest.mark.parametrize("num_classes", [0, -3, 2.5, None])
def test_arcface_head_rejects(num_classes):
    with pytest.raises(ValueError, match=r"num_classes=.*expected an integer >= 1"):
        ArcFaceHead(num_classes)


def cut(x, k):
    """The k largest magnitudes of each row, scaled to unit norm, and which of them stay."""
    kept = np.zeros(x.shape, bool)
    np.put_along_axis(kept, np.argsort(-np.abs(x), axis=1)[:, :k], True, axis=1)
    values = np.where(kept, x, 0).astype(np.float64)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return np.divide(values, norms, out=np.zeros_like(values), where=norms > 0), norms, kept


def sparse_rows(rows, dim, zeros=0.5):
    x = RNG.normal(size=(rows, dim)) * (RNG.random((rows, dim)) >= zeros)
    x[0] = 0
    return l2_normalize(x.astype(np.float32)).numpy()


@pytest.mark.parametrize("k", [1, 3, 8, 20, 50])
def test_keep_largest_against_numpy(k):
    x = sparse_rows(40, 20)
    y = KeepLargest(k, anneal_steps=5)(x).numpy()
    expected, _, _ = cut(x, k)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, expected, atol=1e-6)
    np.testing.assert_array_equal(y != 0, expected != 0)
    assert not y[0].any()
    assert (np.count_nonzero(y, axis=1) <= k).all()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_keep_largest_gradient(jit_compile):
    """For y = c / |c| with the kept values c: (g - <g, y> y) / |c| where kept, else 0."""
    x, g = sparse_rows(30, 16), RNG.normal(size=(30, 16)).astype(np.float32)
    layer = KeepLargest(4, anneal_steps=5)
    layer.build(x.shape)
    run = tf.function(layer, jit_compile=jit_compile)
    y, norms, kept = cut(x, 4)
    across = g - np.sum(g * y, axis=1, keepdims=True) * y
    expected = np.divide(across * kept, norms, out=np.zeros_like(y), where=norms > 0)
    # A row with fewer non-zeros than k keeps zeros too, whichever they are.
    few = np.count_nonzero(x, axis=1) < 4
    found = gradient(run, x, g)
    np.testing.assert_allclose(found[~few], expected[~few], atol=1e-5)
    assert not found[0].any()
    assert 0 < few.sum() < 30

    step = 1e-3
    moved = np.zeros_like(expected)
    for j in range(16):
        ahead, behind = x.copy(), x.copy()
        ahead[:, j] += step
        behind[:, j] -= step
        moved[:, j] = np.sum(g * (cut(ahead, 4)[0] - cut(behind, 4)[0]), axis=1) / (2 * step)
    gaps = np.sort(np.abs(x), axis=1)
    clear = gaps[:, -4] - gaps[:, -5] > 2 * step  # no other value comes in
    assert clear.sum() > 20
    np.testing.assert_allclose(found[clear], moved[clear], rtol=1e-2, atol=1e-2)


def test_keep_largest_keeps_equal_values_together():
    x = np.float32([[2, -2, 1, 1, 0]])
    np.testing.assert_allclose(KeepLargest(1, 1)(x), [[0.5**0.5, -(0.5**0.5), 0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(KeepLargest(3, 1)(x), x / np.sqrt(10), rtol=1e-6)


def test_keep_largest_hides_no_nan():
    x = np.float32([[0.6, np.nan, 0.8, 0]])
    assert np.isnan(KeepLargest(1, 1)(x)).any()


@pytest.mark.parametrize(
    ("k", "dim", "steps", "counts"),
    [
        (2, 20, 4, [8, 6, 5, 3, 2, 2]),  # 2 + 6 * 4/4, 3/4, 2/4, 1/4, 0
        (2, 5, 3, [5, 4, 3, 2]),  # at first all 5 dimensions, not 8
        (3, 40, 1, [12, 3, 3]),
        (7, 5, 2, [5, 5, 5]),  # nothing to cut
    ],
)
def test_keep_largest_anneals_in_training_alone(k, dim, steps, counts):
    x = sparse_rows(6, dim, zeros=0)
    layer = KeepLargest(k, steps)
    for count in counts:
        expected, _, _ = cut(x, count)
        np.testing.assert_allclose(layer(x, training=True), expected, atol=1e-6)
        np.testing.assert_allclose(layer(x), cut(x, k)[0], atol=1e-6)
    assert int(layer.step) == len(counts)


def test_keep_largest_is_saved_with_its_step(tmp_path):
    inputs = keras.Input((20,))
    model = keras.Model(inputs, KeepLargest(2, anneal_steps=4, name="cut")(inputs))
    x = sparse_rows(8, 20)
    assert model.output_shape == (None, 20)
    for _ in range(2):
        model(x, training=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    layer = loaded.get_layer("cut")
    assert (layer.k, layer.anneal_steps, int(layer.step)) == (2, 4, 2)
    assert KeepLargest.from_config(layer.get_config()).get_config() == layer.get_config()
    np.testing.assert_array_equal(loaded(x), model(x))
    np.testing.assert_array_equal(loaded(x, training=True), model(x, training=True))
    assert not loaded.trainable_variables


@pytest.mark.parametrize("dtype_policy", ["mixed_float16"], indirect=True)
def test_keep_largest_computes_in_float32(dtype_policy):
    x = sparse_rows(10, 16)
    y = KeepLargest(4, 1)(x)
    assert y.dtype == tf.float32
    np.testing.assert_allclose(y, cut(x, 4)[0], atol=1e-6)


@pytest.mark.parametrize("name", ["k", "anneal_steps"])
@pytest.mark.parametrize("value", [0, -1, 2.5, None])
def test_keep_largest_rejects(name, value):
    with pytest.raises(ValueError, match=rf"{name}={value}: expected an integer >= 1"):
        KeepLargest(**{"k": 1, "anneal_steps": 1, name: value})
