"""Stops a training run that can no longer succeed, and says what to do."""

import math
from collections.abc import Mapping

from sparse_embed.common.failures import Failure

# A dimension is dead if no example of the last interval activated it.
MOST_DEAD = 0.5
FEWEST_ACTIVE = 1.0


class TrainingStopped(Failure):
    """The run has become useless; what it saved before is kept."""

    exit_code = 3


def check_finite(terms: Mapping[str, float], step: int) -> None:
    """Raises TrainingStopped if a term of the loss is NaN or infinite, naming which.

    Args:
        terms: terms of the loss, such as `metric_loss` and `penalty_loss`.
        step: the current step.
    """
    broken = [f"{name} is {value}" for name, value in terms.items() if not math.isfinite(value)]
    if broken:
        raise TrainingStopped(
            f"stopped at step {step}: {' and '.join(broken)}. The last good checkpoint is kept; "
            "look at the data, or lower --learning_rate"
        )


def check_alive(metrics: Mapping[str, float], embedding_dim: int, step: int) -> None:
    """Raises TrainingStopped if most dimensions are dead or embeddings are (almost) all zero.

    Args:
        metrics: contain `sparsity_dead_dimensions` and `sparsity_active_dimensions`.
        embedding_dim: number of dimensions.
        step: the current step.
    """
    dead = metrics["sparsity_dead_dimensions"]
    active = metrics["sparsity_active_dimensions"]
    if dead > MOST_DEAD * embedding_dim or active < FEWEST_ACTIVE:
        raise TrainingStopped(
            f"stopped at step {step}: the embeddings collapsed, {dead:.0f} of {embedding_dim} "
            f"dimensions are dead and {active:.1f} are active per example. Lower "
            "--regularizer_weight or raise --warmup_steps"
        )
