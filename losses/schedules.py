"""Schedules of the regularization weight: lambda(t) for the training step t."""

import math
from collections.abc import Sequence
from typing import Any

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

    def __call__(self, step: Any) -> Any:
        """Returns lambda(step): a float for a Python number, a float32 tensor for a tensor."""
        if isinstance(step, (int, float)):
            return self.weight * min(1.0, step / self.steps) ** 2
        fraction = tf.cast(step, tf.float32) / self.steps
        return self.weight * tf.square(tf.minimum(1.0, fraction))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {"weight": self.weight, "steps": self.steps}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "QuadraticWarmup":
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

    def __call__(self, step: Any) -> Any:
        """Returns lambda(step): a float for a Python number, a float32 tensor for a tensor."""
        if isinstance(step, (int, float)):
            return self.weights[sum(end <= step for end in self.ends)] * self.warmup(step)
        passed = tf.cast(step, tf.int64)[..., tf.newaxis] >= tf.constant(self.ends, tf.int64)
        stage = tf.reduce_sum(tf.cast(passed, tf.int32), axis=-1)
        return tf.gather(self.weights, stage) * self.warmup(step)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {"weights": self.weights, "ends": self.ends, "warmup_steps": self.warmup.steps}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WeightPath":
        """Returns the schedule that `get_config` described."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="sparse_embed")
class TargetFlops:
    """A budget in place of a weight: lambda adapts until a row costs the wanted FLOPs.

    With x_jt the share of the examples of step t that activate dimension j, and p_jt its moving
    average, F_t is what this step's examples would cost as queries among those before:

        F_t = sum_j p_{j,t-1} x_jt,   p_jt = p_{j,t-1} + (x_jt - p_{j,t-1}) / MEMORY.

    No batch is compared with itself: batch norm makes its examples compete, which hides an eighth
    of a small F. With m_t the moving average of F_t in the same manner (both start with what the
    first batch has), and z_t = min(1, t / steps), the reference goes from F_0 to the target along
    half a cosine wave, and e_t is how far the average will lie above it in AHEAD steps:

        log reference_t = log(flops) + log(F_0 / flops) (1 + cos(pi z_t)) / 2
        e_t = log(m_t / reference_t) + AHEAD log(m_t / m_{t-1}), clipped to [-MOST, MOST]
        lambda(t) = z_t^2 exp(u_t + GAIN e_t),   u_0 = log(weight),   u_{t+1} = u_t + RATE z_t^2 e_t

    This is a controller with proportional, integral and differential terms for log lambda, under
    the paper's quadratic warm-up z_t^2. The proportional term acts at once, against a collapse too:
    lambda falls as soon as embeddings are too sparse. The integral u_t finds the weight that holds
    the target. The differential term keeps F from swinging around a small target. The reference
    keeps the error small on the way; without it, lambda grows to many times what it has to be in
    the end, and dimensions die that nothing revives.

    The regularization layer keeps the state among its weights, hence a run that was killed goes on
    where it stopped. With several replicas x_jt is that of the global batch.

    Args:
        flops: wanted FLOPs per row, sum_j p_j^2: above 0, and below the embedding dimension, which
            is what dense embeddings cost.
        weight: exp(u_0), where the search for lambda begins, > 0. Rather too low: F falls easily
            and rises slowly. On words, a fifth of the final lambda ended 4% below a target of 8,
            six times as much 14% below.
        steps: T of the warm-up, >= 1. Learning must go on for about as long after it, or the
            target is missed: at a learning rate near 0, lambda moves nothing.

    Example:
        >>> layer = FlopsRegularization(TargetFlops(2.0, weight=30.0, steps=1000))
    """

    # Measured on words, for targets from 0.1 to 8. A larger gain or rate makes F swing around a
    # small target; a smaller one is late.
    MEMORY = 10.0
    AHEAD = 20.0
    MOST = math.log(2.0)
    GAIN = 1.5
    RATE = 0.03

    SMALLEST = 1e-6  # of F_t, whose logarithm must be finite

    def __init__(self, flops: float, weight: float = 1.0, steps: int = 1):
        self.flops = float(check_number("flops", flops, above=0))
        self.weight = float(check_number("weight", weight, above=0))
        self.warmup = QuadraticWarmup(1.0, steps)

    def first_state(self, dimensions: int) -> list[float]:
        """Returns the state before the first step: u_0, and zeros for what the first batch has."""
        return [math.log(self.weight), *[0.0] * (2 + dimensions)]

    def adapt(
        self, step: tf.Tensor, state: tf.Tensor, shares: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Takes one step of the controller.

        Args:
            step: t.
            state: (3 + d,) tensor (u_t, m_{t-1}, F_0, p_{j,t-1}).
            shares: (d,) tensor x_jt.

        Returns:
            lambda(t), and the state of the next step.
        """
        log_weight, is_first = state[0], tf.equal(step, 0)
        active = tf.where(is_first, shares, state[3:])
        flops = tf.maximum(tf.reduce_sum(active * shares), self.SMALLEST)
        before = tf.where(is_first, flops, state[1])
        first = tf.where(is_first, flops, state[2])
        average = before + (flops - before) / self.MEMORY

        way = tf.minimum(1.0, tf.cast(step, tf.float32) / self.warmup.steps)
        left = (1.0 + tf.cos(math.pi * way)) / 2.0
        reference = math.log(self.flops) + tf.math.log(first / self.flops) * left
        error = tf.math.log(average) - reference + self.AHEAD * tf.math.log(average / before)
        error = tf.clip_by_value(error, -self.MOST, self.MOST)

        warmup = self.warmup(step)
        weight = warmup * tf.exp(log_weight + self.GAIN * error)
        log_weight += self.RATE * warmup * error
        active += (shares - active) / self.MEMORY
        return weight, tf.concat([tf.stack([log_weight, average, first]), active], axis=0)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {"flops": self.flops, "weight": self.weight, "steps": self.warmup.steps}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TargetFlops":
        """Returns the schedule that `get_config` described."""
        return cls(**config)
