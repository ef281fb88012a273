"""The sparsifier as a Keras model, made of Keras' own layers and operations only.

So `keras.models.load_model` reads it where this package is not installed.
"""

import io
import os
import re
import weakref
import zipfile
from collections.abc import Callable

import h5py
import keras
import numpy as np
import scipy.sparse
import tensorflow as tf
from keras import ops

from sparse_embed.common.reading import check_keras_file, parse_json, reading
from sparse_embed.models.head import l2_normalize
from sparse_embed.sparsify.learning import Atoms

Graph = Callable[[tf.Tensor], tf.Tensor]

_LARGEST = "largest_"  # and k: the name of the layer that keeps the k largest
_EXPECTED = "a .keras file that Sparsifier.save wrote"
_BATCH_VALUES = 1 << 23  # activations that are in memory together: 32 MB
# Of models in use.
_graphs: weakref.WeakKeyDictionary[keras.Model, Graph] = weakref.WeakKeyDictionary()


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
    largest = keras.Model(top, ops.where(stays, top, 0.0), name=f"{_LARGEST}{nonzeros}")
    # Without this, a row of zeros would get the code of the bias.
    alive = ops.cast(ops.any(inputs != 0, axis=-1, keepdims=True), "float32")
    kept = largest(activations) * alive
    few = keras.Input((count,), name="kept")
    codes = keras.Model(few, l2_normalize(few), name="codes")(kept)
    return keras.Model(inputs, codes, name="sparsifier")


def read_encoder(path: str | os.PathLike[str]) -> tuple[keras.Model, int]:
    """Returns the model of `build_encoder` that Keras wrote to a file, and its `nonzeros`.

    Only its numbers are read, and the model is built anew: Keras would make whatever layers a file
    describes, of any class and size.

    Raises:
        DataError: the file is damaged, or another model.
    """
    with reading(path, _EXPECTED, RuntimeError):  # h5py's word for much
        check_keras_file(path)
        with zipfile.ZipFile(path) as archive:
            layers = parse_json(archive.read("config.json"))["config"]["layers"]
            weights = io.BytesIO(archive.read("model.weights.h5"))
        with h5py.File(weights, "r") as file:
            kernel, bias = (_array(file, f"layers/dense/vars/{place}") for place in (0, 1))
        if kernel.ndim != 2 or not kernel.size or bias.shape != kernel.shape[1:]:
            raise ValueError(f"atoms of {kernel.shape} and {bias.shape}: expected (d, n) and (n,)")
        names = [layer["name"] for layer in layers]
        largest = next((name for name in names if str(name).startswith(_LARGEST)), None)
        if largest is None or not {"dense", "unit_rows", "atoms", "codes"} <= {*names}:
            raise ValueError("expected the layers unit_rows, atoms, largest_ and codes in it")
        few = re.fullmatch(f"{_LARGEST}([1-9][0-9]{{,9}})", largest)
        nonzeros = int(few[1]) if few else 0
        if not 0 < nonzeros <= len(bias):
            most = f"{_LARGEST}{len(bias)}"
            raise ValueError(f"the layer {largest:.80}: expected {_LARGEST}1 to {most}")
    return build_encoder(Atoms(kernel, bias), nonzeros), nonzeros


def _array(file: h5py.File, name: str) -> np.ndarray:
    """Returns an array of finite float32 that lies in the file as it is."""
    found = file[name]
    if not isinstance(found, h5py.Dataset) or found.dtype != np.float32:
        raise ValueError(f"{name} is {found!r:.80}: expected an array of float32")
    if found.chunks or found.external or found.is_virtual or found.file.filename != file.filename:
        raise ValueError(f"{name} is compressed or elsewhere: expected it whole, where it lies")
    if (stored := found.id.get_storage_size()) != found.nbytes:
        raise ValueError(f"{name} of {found.shape}: {stored:,} bytes stored")
    array: np.ndarray = found[...]
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return array


def encode(model: keras.Model, rows: np.ndarray) -> scipy.sparse.csr_array:
    """Returns the codes of float32 rows, in batches that take little memory."""
    graph = _graph(model)
    size = max(1, _BATCH_VALUES // model.output_shape[-1])
    parts = [
        scipy.sparse.csr_array(graph(tf.constant(rows[begin : begin + size])).numpy())
        for begin in range(0, len(rows), size)
    ]
    return scipy.sparse.csr_array(scipy.sparse.vstack(parts, "csr"))


def _graph(model: keras.Model) -> Graph:
    """Returns the model as one graph for batches of any size, made at its first use.

    `predict_on_batch` makes two, and TensorFlow warns of too many after a few models.
    """
    if model not in _graphs:
        rows = tf.TensorSpec((None, model.input_shape[-1]), tf.float32)
        call = tf.function(lambda x: model(x, training=False), input_signature=[rows])
        _graphs[model] = call.get_concrete_function()
    graph: Graph = _graphs[model]
    return graph
