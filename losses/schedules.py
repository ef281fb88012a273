"""Schedules of the regularization weight: lambda(t) for the training step t."""

import keras
import tensorflow as tf

from sparse_embed.common.checks import check_number


@keras.saving.register_keras_serializable(package="sparse_embed")
class QuadraticWarmup:
    """The paper's annealing of the regularization weight (section 5, practical considerations).

    lambda(t) = weight * min(1, t / steps)^2: a large weight from the first step on would kill
    most dimensions before the metric loss has shaped them.

    Args:
        weight: lambda after the warm-up, >= 0.
        steps: T, the number of steps until the weight is reached, >= 1.

    Example:
        >>> QuadraticWarmup(200.0, steps=1000)(500)
        50.0
    """

    def __init__(self, weight: float, steps: int):
        self.weight = float(check_number("weight", weight, minimum=0))
        self.steps = int(check_number("steps", steps, integer=True, minimum=1))

    def __call__(self, step):
        """Returns lambda(step): a float for a Python number, a float32 tensor for a tensor."""
        if isinstance(step, (int, float)):
            return self.weight * min(1.0, step / self.steps) ** 2
        fraction = tf.cast(step, tf.float32) / self.steps
        return self.weight * tf.square(tf.minimum(1.0, fraction))

    def get_config(self) -> dict:
        """Returns the arguments of the constructor."""
        return {"weight": self.weight, "steps": self.steps}

    @classmethod
    def from_config(cls, config: dict) -> "QuadraticWarmup":
        """Returns the schedule that `get_config` described."""
        return cls(**config)
