"""The sparsifier as a Keras model, made of Keras' own layers and operations only.

So `keras.models.load_model` reads it where this package is not installed.
"""

import weakref
from collections.abc import Callable

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf
from keras import ops

from sparse_embed.models.head import l2_normalize
from sparse_embed.sparsify.learning import Atoms

_BATCH_VALUES = 1 << 23  # activations that are in memory together: 32 MB
_graphs: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # of models in use


def build_encoder(atoms: Atoms, nonzeros: int) -> keras.Model:
    """Returns the model u = x / ||x||, a = ReLU(W^T u + b), z = the k largest of a, to unit norm.

    A row of zeros has a code of zeros. Of activations that tie for the k-th place those of lower
    dimensions stay, as in `keep_largest`.

    Args:
        atoms: W and b.
        nonzeros: k.
    """
    dim, count = atoms.kernel.shape
    inputs = keras.Input((dim,), name="dense")
    # Divided by the largest value first: squares of very long or short rows leave float32.
    size = ops.max(ops.abs(inputs), axis=-1, keepdims=True)
    scaled = l2_normalize(inputs / ops.where(size > 0, size, 1.0))
    unit = keras.Model(inputs, scaled, name="unit_rows")(inputs)
    # In half precision, whatever Keras' default, many activations would tie.
    layer = keras.layers.Dense(count, activation="relu", name="atoms", dtype="float32")
    activations = layer(unit)
    layer.set_weights([atoms.kernel, atoms.bias])
    top = keras.Input((count,), name="activations")
    least = ops.top_k(top, nonzeros)[0][:, -1:]
    above, tied = top > least, ops.equal(top, least)
    room = nonzeros - ops.sum(ops.cast(above, "int32"), axis=-1, keepdims=True)
    first = ops.cumsum(ops.cast(tied, "int32"), axis=-1) <= room
    stays = ops.logical_or(above, ops.logical_and(tied, first))
    largest = keras.Model(top, ops.where(stays, top, 0.0), name=f"largest_{nonzeros}")
    # Without this, a row of zeros would get the code of the bias.
    alive = ops.cast(ops.any(inputs != 0, axis=-1, keepdims=True), "float32")
    kept = largest(activations) * alive
    few = keras.Input((count,), name="kept")
    codes = keras.Model(few, l2_normalize(few), name="codes")(kept)
    return keras.Model(inputs, codes, name="sparsifier")


def encode(model: keras.Model, rows: np.ndarray) -> scipy.sparse.csr_array:
    """Returns the codes of float32 rows, in batches that take little memory."""
    graph = _graph(model)
    size = max(1, _BATCH_VALUES // model.output_shape[-1])
    parts = [
        scipy.sparse.csr_array(graph(tf.constant(rows[begin : begin + size])).numpy())
        for begin in range(0, len(rows), size)
    ]
    return scipy.sparse.csr_array(scipy.sparse.vstack(parts, "csr"))


def _graph(model: keras.Model) -> Callable:
    """Returns the model as one graph for batches of any size, made at its first use.

    `predict_on_batch` makes two, and TensorFlow warns of too many after a few models.
    """
    if model not in _graphs:
        rows = tf.TensorSpec((None, model.input_shape[-1]), tf.float32)
        call = tf.function(lambda x: model(x, training=False), input_signature=[rows])
        _graphs[model] = call.get_concrete_function()
    return _graphs[model]
