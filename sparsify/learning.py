"""Learns the map from dense rows to sparse codes that keeps what the dense rows say.

A centred dense row x gets the activations a = ReLU(W^T x + b). Its code keeps the k largest of them
and is scaled to unit norm: z. It should still point where the row points, seen through the same
atoms (the columns of W, a tied decoder):

    loss = 1 - cos(W z, x) + contrast * supervised_contrast(labels, z).

Keeping the k largest fixes the non-zeros of a row, not those of a dimension; a search costs the sum
of p_j^2. So, after each step, the bias of every dimension that was active too often sinks, and that
of one active too seldom rises, until all are active equally often.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from sparse_embed.common.progress import progress_bar
from sparse_embed.losses import relaxed_flops, supervised_contrast

# Chosen on splits of LFW and of captions that no reported figure is of: docs/sparsify.md.
_BATCH = 512
# The more atoms a row has to choose from, the sooner they fit single rows: learned at this rate,
# 4,096 atoms find fewer faces of LFW than random ones do.
_LEARNING_RATE = 3e-3  # of up to 512 atoms
_TEMPERATURE = 0.05
# How far a bias moves per step, in standard deviations of the activations, where a dimension is
# active e times too often or too seldom. It falls to 0 with the steps, as the learning rate does.
BALANCE = 0.04


@dataclasses.dataclass(frozen=True)
class Atoms:
    """What is learned: activations of the unit row u are ReLU(kernel^T u + bias)."""

    kernel: np.ndarray
    bias: np.ndarray


def frames(dim: int, atoms: int, rng: np.random.Generator) -> np.ndarray:
    """Returns `atoms` unit columns of random orthogonal matrices side by side, (dim, atoms).

    Evener than independent directions: untrained, they find more (docs/sparsify.md).
    """

    def rotation() -> np.ndarray:
        q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
        # Without the signs, some directions never come.
        turned: np.ndarray = q * np.sign(np.diagonal(r))
        return turned

    whole = [rotation() for _ in range(-(-atoms // dim))]
    return np.concatenate(whole, axis=1)[:, :atoms].astype(np.float32)


def untrained(rows: np.ndarray, atoms: int, seed: int) -> Atoms:
    """Returns random frames that centre the unit rows: where `learn` begins."""
    kernel = frames(rows.shape[1], atoms, np.random.default_rng(seed))
    return Atoms(kernel, -rows.mean(axis=0, dtype=np.float64).astype(np.float32) @ kernel)


def learn(
    rows: np.ndarray,
    atoms: int,
    nonzeros: int,
    steps: int,
    seed: int,
    labels: np.ndarray | None = None,
    contrast: float = 0.0,
    balance: float = BALANCE,
    penalty: float = 0.0,
    progress: bool = False,
) -> Atoms:
    """Learns atoms for codes with `nonzeros` of them.

    Args:
        rows: (n, d) float32 rows of unit norm.
        atoms: number of atoms, the dimension of the codes.
        nonzeros: k, how many a row keeps.
        steps: training steps.
        seed: of the first atoms and of the batches.
        labels: (n,) class numbers, for `contrast`.
        contrast: weight of the supervised contrast.
        balance: how fast biases even out the dimensions; 0 leaves them to the gradient alone.
        penalty: weight of the relaxed FLOPs of the codes, to compare with `balance`.
        progress: whether to draw a bar.
    """
    first = frames(rows.shape[1], atoms, np.random.default_rng(seed))
    centre = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    kernel, bias = tf.Variable(first), tf.Variable(tf.zeros(atoms))
    rate = _LEARNING_RATE * min(1.0, 512 / atoms) ** 0.5
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, steps))
    optimizer.build([kernel, bias])
    share = nonzeros / atoms
    batches = _Batches(rows, labels if contrast else None, seed)

    @tf.function(reduce_retracing=True)
    def step(x: tf.Tensor, classes: tf.Tensor, time_left: tf.Tensor) -> None:
        x -= centre
        with tf.GradientTape() as tape:
            activations = tf.nn.relu(tf.matmul(x, kernel) + bias)
            least = tf.math.top_k(tf.stop_gradient(activations), nonzeros)[0][:, -1:]
            kept = tf.where(activations < least, 0.0, activations)
            loss = tf.reduce_mean(
                keras.losses.cosine_similarity(x, tf.matmul(kept, kernel, transpose_b=True))
            )
            codes = tf.math.l2_normalize(kept, axis=1)
            if contrast:
                apart = supervised_contrast(classes, codes, _TEMPERATURE)
                loss += contrast * tf.reduce_mean(apart)
            if penalty:
                loss += penalty * relaxed_flops(codes)
        gradients = tape.gradient(loss, [kernel, bias])
        optimizer.apply(gradients, [kernel, bias])
        if balance:
            active = tf.reduce_mean(tf.cast(kept > 0, tf.float32), axis=0)
            # A tenth of the share keeps the logarithm of a dimension without any row finite.
            too_often = tf.math.log((active + 0.1 * share) / (1.1 * share))
            spread = balance * time_left * tf.math.reduce_std(activations)
            bias.assign_sub(spread * tf.clip_by_value(too_often, -1.0, 1.0))

    for done in progress_bar(range(steps), desc="learning", unit="step", disable=not progress):
        chosen = batches.next()
        classes = chosen if labels is None else labels[chosen]
        step(rows[chosen], classes.astype(np.int32), np.float32(1 - done / steps))
    return Atoms(kernel.numpy(), bias.numpy() - centre @ kernel.numpy())


class _Batches:
    """Rows in random order, again and again; with labels, half of a batch are pairs of one class.

    Classes are drawn alike, whatever their size. A batch of many classes would hold few pairs else.
    """

    def __init__(self, rows: np.ndarray, labels: np.ndarray | None, seed: int):
        self._rng = np.random.default_rng(seed)
        self._count, self._size = len(rows), min(_BATCH, len(rows))
        self._order = np.empty(0, np.int64)
        self._starts = self._sizes = np.empty(0, np.int64)  # of classes with two rows or more
        if labels is not None:
            self._sorted = np.argsort(labels, kind="stable")
            _, starts, sizes = np.unique(
                labels[self._sorted], return_index=True, return_counts=True
            )
            self._starts, self._sizes = starts[sizes > 1], sizes[sizes > 1]

    def next(self) -> np.ndarray:
        """Returns the numbers of the rows of the next batch."""
        pairs = self._size // 4 if self._sizes.size else 0
        singles = self._size - 2 * pairs
        if self._order.size < singles:
            self._order = np.concatenate([self._order, self._rng.permutation(self._count)])
        chosen, self._order = self._order[:singles], self._order[singles:]
        if not pairs:
            return chosen
        classes = self._rng.integers(self._sizes.size, size=pairs)
        starts, sizes = self._starts[classes], self._sizes[classes]
        one = self._rng.integers(sizes)
        other = (one + self._rng.integers(1, sizes)) % sizes
        return np.concatenate([chosen, self._sorted[starts + one], self._sorted[starts + other]])
