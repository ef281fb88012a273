"""Saves everything that a training run needs to resume as if it had never stopped.

One file holds the weights, the optimizer's state and step, the schedule's step, the state of the
random generators, and the number of steps trained. The data order needs no saving: it is a function
of the seed and the step.
"""

import pathlib
from typing import TYPE_CHECKING

from sparse_embed.common.files import atomic_path

if TYPE_CHECKING:
    import keras

LAST = "last.weights.h5"
BEST = "best.weights.h5"
_STEPS = "steps_trained"


def save(path: pathlib.Path, model: "keras.Model", steps: int) -> None:
    """Writes the state of a compiled model, of its optimizer and of the data, atomically.

    The optimizer's own count cannot replace `steps`: in half precision it leaves out the batches
    whose gradients overflowed.
    """
    import h5py

    path.parent.mkdir(exist_ok=True)
    with atomic_path(path) as temporary:
        model.save_weights(temporary, overwrite=True)
        with h5py.File(temporary, "a") as file:
            file.attrs[_STEPS] = steps


def restore(path: pathlib.Path, model: "keras.Model") -> int:
    """Restores the state if the file exists; returns the number of steps trained so far."""
    import h5py

    if not path.exists():
        return 0
    model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    with h5py.File(path) as file:
        return int(file.attrs[_STEPS])
