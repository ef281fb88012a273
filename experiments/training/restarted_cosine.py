"""The cosine learning rate over a training run of one or several stages."""

from typing import Any

import keras
from keras import ops


class RestartedCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Falls from `rate` to 0 along half a cosine in each stage, and starts again in the next.

    Args:
        rate: highest learning rate.
        ends: step at which each stage ends.
    """

    def __init__(self, rate: float, ends: list[int]):
        super().__init__()
        self._rate, self._ends = rate, ends
        lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        self._stages = [keras.optimizers.schedules.CosineDecay(rate, n) for n in lengths]

    def __call__(self, step: Any) -> Any:
        """Returns the rate at a step; 0 from the last end on."""
        rate = self._stages[0](step)
        for end, stage in zip(self._ends, self._stages[1:], strict=False):
            rate = ops.where(step < end, rate, stage(step - end))
        return rate

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {"rate": self._rate, "ends": self._ends}
