import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.losses import SDHLoss, hash_distances, optimal_codes, sdh_triplet


def cost(means, codes, pairwise_cost):
    """The objective as it is written: sum_p -<c_p, z_p> + cost * sum_{p < q} <z_p, z_q>."""
    shared = sum(np.dot(a, b) for a, b in itertools.combinations(codes, 2))
    return -np.sum(means * codes) + pairwise_cost * shared


def best_cost(means, active_bits, pairwise_cost):
    """The least cost of all (d choose k)^classes assignments."""
    classes, bits = means.shape
    rows = [
        np.isin(np.arange(bits), chosen).astype(float)
        for chosen in itertools.combinations(range(bits), active_bits)
    ]
    return min(
        cost(means, np.array(codes), pairwise_cost)
        for codes in itertools.product(rows, repeat=classes)
    )


@pytest.mark.parametrize("pairwise_cost", [0.0, 0.1, 5.0])
@pytest.mark.parametrize(("classes", "bits", "k"), [(1, 5, 2), (3, 4, 1), (3, 5, 2), (4, 4, 3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_codes_are_optimal(classes, bits, k, pairwise_cost, seed):
    rng = np.random.default_rng(seed)
    # A common part makes classes want the same bits.
    means = 0.3 * rng.normal(size=(classes, bits)) + rng.normal(size=bits)
    found = optimal_codes(means, np.arange(classes), k, pairwise_cost)
    codes = np.zeros((classes, bits))
    np.put_along_axis(codes, found, 1, axis=1)
    assert (codes.sum(axis=1) == k).all()
    best = best_cost(means, k, pairwise_cost)
    assert cost(means, codes, pairwise_cost) == pytest.approx(best, abs=classes * k * 1e-6)


def test_codes_belong_to_classes_by_their_means():
    """The means are (0.6, 0.5, 0) of class 7 and (0.9, 0.85, 0) of class 3: both like bit 0 best.
    Sharing it costs 1; class 7 loses 0.1 on bit 1 and class 3 0.05, so class 3 gives way."""
    embeddings = np.array([[0.4, 0.4, 0.0], [0.9, 0.85, 0.0], [0.8, 0.6, 0.0]])
    codes = optimal_codes(embeddings, np.array([7, 3, 7]), 1, 1.0)
    np.testing.assert_array_equal(codes, [[0], [1], [0]])
    cheap = optimal_codes(embeddings, np.array([7, 3, 7]), 1, 0.04)
    np.testing.assert_array_equal(cheap, [[0], [0], [0]])
    assert codes.dtype == np.int32


def test_a_high_cost_spreads_classes_evenly():
    """40 classes with the same embedding and 2 bits each: of 20 bits, each belongs to 4."""
    embeddings = np.tile(np.linspace(1, 0, 20), (40, 1))
    codes = optimal_codes(embeddings, np.arange(40), 2, 1.1)
    np.testing.assert_array_equal(np.bincount(codes.ravel(), minlength=20), 4)
    free = optimal_codes(embeddings, np.arange(40), 2, 0.0)
    np.testing.assert_array_equal(free, [[0, 1]] * 40)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.eye(3), np.arange(2), 1), r"embeddings of shape \(3, 3\) and labels of shape \(2,\)"),
        ((np.eye(3), np.arange(3), 4), "active_bits=4: expected an integer >= 1 <= 3"),
        ((np.eye(3), np.arange(3), 1, -1.0), "pairwise_cost=-1.0: expected a finite number >= 0"),
        ((np.full((1, 2), np.nan), np.zeros(1), 1), "NaN"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimal_codes(*arguments)


def test_distance_over_the_union_of_bits():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 6)), rng.normal(size=(7, 6))
    bits_a = np.stack([rng.choice(6, 2, replace=False) for _ in a]).astype(np.int32)
    bits_b = np.stack([rng.choice(6, 2, replace=False) for _ in b]).astype(np.int32)
    expected = [
        [sum(abs(a[i, q] - b[j, q]) for q in {*bits_a[i], *bits_b[j]}) for j in range(7)]
        for i in range(5)
    ]
    np.testing.assert_allclose(hash_distances(*map(tf.constant, (a, bits_a, b, bits_b))), expected)


def loops(labels, x, active_bits, pairwise_cost, margin):
    """The loss with loops, given the codes: mean over ordered pairs of one class."""
    bits = optimal_codes(x, labels, active_bits, pairwise_cost)
    n = len(x)

    def distance(i, j):
        return sum(abs(x[i, q] - x[j, q]) for q in {*bits[i], *bits[j]})

    costs = []
    for a, p in itertools.permutations(range(n), 2):
        if labels[a] != labels[p]:
            continue
        negatives = [distance(a, j) for j in range(n) if labels[j] != labels[a]]
        further = [d for d in negatives if d > distance(a, p)]
        costs.append(max(0, distance(a, p) - (min(further or [max(negatives)])) + margin))
    return np.mean(costs)


def test_loss_against_loops_and_its_gradient_against_differences():
    rng = np.random.default_rng(1)
    labels = np.array([0, 0, 1, 1, 2, 2, 2, 3])
    x = rng.normal(size=(8, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    arguments = (2, 0.1, 0.4)
    values = tf.function(sdh_triplet)(labels, x, *arguments)
    assert values.shape == (8,)
    assert np.mean(values) == pytest.approx(loops(labels, x, *arguments))
    assert np.mean(values) > 0.05
    variable = tf.Variable(x)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(sdh_triplet(labels, variable, *arguments))
    gradient = tf.convert_to_tensor(tape.gradient(loss, variable)).numpy()
    direction = 1e-6 * rng.normal(size=x.shape)  # too small a step for other codes or negatives
    up, down = (loops(labels, x + s * direction, *arguments) for s in (1, -1))
    assert np.sum(gradient * direction) == pytest.approx((up - down) / 2, rel=1e-4)


def test_training_moves_images_to_the_bits_of_their_class():
    """With one active bit, in the end each of four classes has a bit of its own."""
    rng = np.random.default_rng(0)
    labels = np.arange(64) % 4
    x = rng.normal(size=(4, 12))[labels] + 0.3 * rng.normal(size=(64, 12))
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(8), keras.layers.UnitNormalization()])
    model.compile(keras.optimizers.Adam(0.03), SDHLoss(1, 0.1, 0.5), jit_compile=False)

    def counts():
        best = np.argmax(model(x), axis=1)
        return np.array([np.bincount(best[labels == c], minlength=8) for c in range(4)])

    before = counts()
    model.fit(np.tile(x, (100, 1)), np.tile(labels, 100), batch_size=64, shuffle=False, verbose=0)
    after = counts()
    assert before.max(axis=1).sum() < 50
    assert after.max(axis=1).sum() > 60
    assert len(set(after.argmax(axis=1))) == 4


def test_configuration():
    loss = SDHLoss(2, 0.3, 0.7)
    again = SDHLoss.from_config(loss.get_config())
    assert (again.active_bits, again.pairwise_cost, again.margin) == (2, 0.3, 0.7)
    with pytest.raises(ValueError, match="active_bits=0"):
        SDHLoss(0)
    with pytest.raises(ValueError, match="margin=0"):
        SDHLoss(margin=0)
