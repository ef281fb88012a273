"""ArcFace: softmax cross-entropy with an additive angular margin on the target (Deng et al.)."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sparse_embed.common.checks import check_number


def arcface(labels: Any, cosines: Any, margin: float = 0.5, scale: float = 64.0) -> tf.Tensor:
    """Returns the ArcFace loss of each example.

    With the angle theta_k between an embedding and the weights of class k, and y its label,

        loss = -log( e^{s f(theta_y)} / (e^{s f(theta_y)} + sum_{k != y} e^{s cos theta_k}) ),
        f(theta) = cos(theta + m)         while theta + m <= pi,
                   cos(theta) - m sin(m)  beyond.

    cos(theta + m) alone would rise again beyond pi, and reward moving further from the class. The
    second branch is that of the authors' implementation (insightface); f jumps down by m sin(m) -
    (1 - cos(m)) >= 0 there, so that it falls over the whole range of theta for every margin in [0,
    pi/2].

    Args:
        labels: (batch,) or (batch, 1) class numbers.
        cosines: (batch, classes) tensor; rounding may have put values slightly outside [-1, 1].
        margin: m, in radians.
        scale: s, the inverse temperature.

    Returns:
        (batch,) tensor, in the dtype of `cosines` but at least float32.
    """
    cosines = tf.convert_to_tensor(cosines)
    if cosines.dtype.size < 4:
        cosines = tf.cast(cosines, tf.float32)
    labels = tf.reshape(tf.cast(labels, tf.int32), [-1])
    target = tf.clip_by_value(tf.gather(cosines, labels, batch_dims=1), -1.0, 1.0)

    # cos(theta + m) = cos(theta) cos(m) - sin(theta) sin(m). The derivative of the square root is
    # infinite where sin(theta) = 0: below half a rounding unit of cos(theta), take the sine as
    # zero and constant. The inner `where` keeps the infinity from turning into 0 * inf = NaN.
    squared_sine = (1.0 - target) * (1.0 + target)
    away = squared_sine > 0.5 * np.finfo(cosines.dtype.as_numpy_dtype).eps
    sine = tf.where(away, tf.sqrt(tf.where(away, squared_sine, 1.0)), 0.0)
    with_margin = tf.where(
        target >= -math.cos(margin),  # theta <= pi - m
        target * math.cos(margin) - sine * math.sin(margin),
        target - margin * math.sin(margin),
    )

    rows = tf.range(tf.shape(labels)[0])
    logits = tf.tensor_scatter_nd_update(cosines, tf.stack([rows, labels], axis=1), with_margin)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scale * logits)


@keras.saving.register_keras_serializable(package="sparse_embed")
class ArcFaceLoss(keras.losses.Loss):
    """`arcface` as a Keras loss on (labels, cosines), one value per example before reduction.

    Computes in float32 whatever the precision of the cosines. Keras hands labels over as floats:
    class numbers are exact up to 2^24.

    Args:
        margin: m in radians, between 0 and pi/2. The paper: 0.5.
        scale: s > 0. The paper: 64.
        reduction: see `keras.losses.Loss`.
        name: name of the loss.
    """

    def __init__(
        self,
        margin: float = 0.5,
        scale: float = 64.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "arcface",
    ):
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.margin = float(check_number("margin", margin, minimum=0, maximum=math.pi / 2))
        self.scale = float(check_number("scale", scale, above=0))

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Returns one value per example."""
        return arcface(y_true, y_pred, self.margin, self.scale)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "margin": self.margin, "scale": self.scale}
