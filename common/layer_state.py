"""What a Keras layer remembers from training step to training step."""

from typing import Any


def add_state(
    layer: Any,
    name: str,
    initializer: Any = "zeros",
    shape: tuple[int, ...] = (),
    dtype: str = "float32",
) -> Any:
    """Adds a variable that no optimizer changes; it is saved with the layer.

    All replicas of a strategy take the same step, so what the first one assigns is taken.

    Args:
        layer: the layer, in its `build`.
        name: of the variable.
        initializer: of its first value.
        shape: of the variable.
        dtype: of the variable.
    """
    return layer.add_weight(
        shape=shape,
        initializer=initializer,
        dtype=dtype,
        trainable=False,
        aggregation="only_first_replica",
        name=name,
    )


def add_step_counter(layer: Any) -> Any:
    """Adds the number of training steps so far."""
    return add_state(layer, "step", dtype="int64")
