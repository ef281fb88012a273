"""Saves all that a training needs to go on as if it had never stopped.

One file holds the weights, the optimizer's state and step, the schedule's step and the state of the
random generators. The data order needs no saving: it is a function of the seed and the step.
"""

import pathlib
from typing import TYPE_CHECKING

from sparse_embed.common.files import atomic_path

if TYPE_CHECKING:
    import keras

LAST = "last.weights.h5"
BEST = "best.weights.h5"


def save(path: pathlib.Path, model: "keras.Model") -> None:
    """Writes the state of a compiled model and its optimizer, atomically."""
    path.parent.mkdir(exist_ok=True)
    with atomic_path(path) as temporary:
        model.save_weights(temporary, overwrite=True)


def restore(path: pathlib.Path, model: "keras.Model") -> int:
    """Puts the state back if the file is there; returns the number of steps trained so far."""
    if not path.exists():
        return 0
    model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    return steps_trained(model)


def steps_trained(model: "keras.Model") -> int:
    """Returns the optimizer's step, which is a variable of several copies under a strategy."""
    import tensorflow as tf

    return int(tf.convert_to_tensor(model.optimizer.iterations))
