"""Saves everything that a training run needs to resume as if it had never stopped.

One file holds the weights, the optimizer's state and step, the schedule's step, the state of the
random generators, and the number of steps trained; within an interval of the curves, also what its
steps have added up. The data order needs no saving: it is a function
of the seed and the step.
"""

import dataclasses
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from sparse_embed.common.checks import check_number
from sparse_embed.common.files import atomic_path
from sparse_embed.common.reading import reading

if TYPE_CHECKING:
    import keras

LAST = "last.weights.h5"
BEST = "best.weights.h5"
_STEPS = "steps_trained"
_INTERVAL = "interval"
_EXPECTED = "a checkpoint of this run (without the file it starts from step 0)"


@dataclasses.dataclass(frozen=True)
class Interval:
    """What the steps of an interval of the curves have added up before its end.

    Attributes:
        totals: values of the variables of the model's metrics.
        seconds: how long they took.
    """

    totals: list[np.ndarray]
    seconds: float


def save(
    path: pathlib.Path, model: "keras.Model", steps: int, interval: Interval | None = None
) -> None:
    """Writes the state of a compiled model, of its optimizer and of the data, atomically.

    The optimizer's own count cannot replace `steps`: in half precision it leaves out the batches
    whose gradients overflowed. `interval` is for a checkpoint within an interval of the curves.
    """
    import h5py

    path.parent.mkdir(exist_ok=True)
    with atomic_path(path) as temporary:
        model.save_weights(temporary, overwrite=True)
        with h5py.File(temporary, "a") as file:
            file.attrs[_STEPS] = steps
            if interval is not None:
                group = file.create_group(_INTERVAL)
                group.attrs["seconds"] = interval.seconds
                for number, value in enumerate(interval.totals):
                    group[str(number)] = value


def steps_trained(path: pathlib.Path) -> int:
    """Returns the number of steps trained before the checkpoint; 0 if there is none."""
    import h5py

    if not path.exists():
        return 0
    with reading(path, _EXPECTED), h5py.File(path) as file:
        return check_number(_STEPS, int(file.attrs[_STEPS]), minimum=0)


def restore(path: pathlib.Path, model: "keras.Model") -> int:
    """Restores the state if the file exists; returns the number of steps trained so far."""
    if not path.exists():
        return 0
    model.optimizer.build(model.trainable_variables)
    with reading(path, _EXPECTED):
        model.load_weights(path)
    return steps_trained(path)


def restore_interval(path: pathlib.Path) -> Interval | None:
    """Returns what a checkpoint within an interval of the curves keeps of it; None for others."""
    import h5py

    if not path.exists():
        return None
    with reading(path, "a checkpoint of this run"), h5py.File(path) as file:
        if _INTERVAL not in file:
            return None
        group = file[_INTERVAL]
        totals = [group[str(number)][()] for number in range(len(group))]
        return Interval(totals, float(group.attrs["seconds"]))
