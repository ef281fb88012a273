"""Schedules of the regularization weight: lambda(t) for the training step t."""

from collections.abc import Sequence

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


@keras.saving.register_keras_serializable(package="sparse_embed")
class WeightPath:
    """A regularization path: one training run under increasing weights.

    lambda(t) = weights[k] * min(1, t / warmup_steps)^2 in stage k, the number of `ends` that are
    <= t: the quadratic warm-up to the first weight, then from each end on the next weight.

    Args:
        weights: lambda of each stage, >= 0 and increasing.
        ends: step at which each stage but the last ends, > 0 and increasing.
        warmup_steps: T of the warm-up, >= 1.

    Example:
        >>> path = WeightPath([10.0, 20.0], ends=[1000], warmup_steps=100)
        >>> path(50), path(999), path(1000)
        (2.5, 10.0, 20.0)
    """

    def __init__(self, weights: Sequence[float], ends: Sequence[int], warmup_steps: int):
        self.weights = [float(check_number("weights", value, minimum=0)) for value in weights]
        self.ends = [int(check_number("ends", value, integer=True, minimum=1)) for value in ends]
        self.warmup = QuadraticWarmup(1.0, warmup_steps)
        for name, values in (("weights", self.weights), ("ends", self.ends)):
            if values != sorted(set(values)):
                raise ValueError(f"{name}={values}: expected increasing numbers")
        if len(self.weights) != len(self.ends) + 1:
            raise ValueError(f"ends={self.ends}: expected one less than weights={self.weights}")

    def __call__(self, step):
        """Returns lambda(step): a float for a Python number, a float32 tensor for a tensor."""
        if isinstance(step, (int, float)):
            return self.weights[sum(end <= step for end in self.ends)] * self.warmup(step)
        passed = tf.cast(step, tf.int64)[..., tf.newaxis] >= tf.constant(self.ends, tf.int64)
        stage = tf.reduce_sum(tf.cast(passed, tf.int32), axis=-1)
        return tf.gather(self.weights, stage) * self.warmup(step)

    def get_config(self) -> dict:
        """Returns the arguments of the constructor."""
        return {"weights": self.weights, "ends": self.ends, "warmup_steps": self.warmup.steps}

    @classmethod
    def from_config(cls, config: dict) -> "WeightPath":
        """Returns the schedule that `get_config` described."""
        return cls(**config)
