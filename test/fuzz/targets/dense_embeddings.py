"""Dense embeddings of other encoders: `.npz`, or `.npy` with labels."""

import pathlib

import numpy as np
from fuzz import arrays
from fuzz.mutations import Parts

from sparse_embed.datasets import dense_embeddings

TOKENS = arrays.TOKENS


def seeds() -> list[Parts]:
    """Labels that are numbers, with names, or texts; whole files, and the arrays in them."""
    embeddings = arrays.pieces("embeddings", np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    numbers = arrays.pieces("labels", np.array([0, 1, 1, 2]))
    texts = arrays.pieces("labels", np.array(["a", "b", "b", "c"]))
    names = arrays.pieces("identities", np.array(["Ada", "Bob", "Cyd"]))
    both = arrays.join({**embeddings, **numbers})
    return [
        {**embeddings, **numbers, **names},
        {**embeddings, **texts},
        {"a.npz": arrays.zipped(both)},
        {"a.npz": arrays.zipped(both, compress=True)},
        {"a.npy": both["embeddings.npy"], "a.labels.npy": both["labels.npy"]},
    ]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Reads them; there must be a finite row, a label and a class for each."""
    joined = arrays.join(parts)
    if "embeddings.npy" in joined:
        joined = {"a.npz": arrays.zipped(joined)}
    arrays.write(joined, folder)
    path = folder / ("a.npz" if "a.npz" in joined else "a.npy")
    examples = dense_embeddings.load(path)
    assert examples.labels.shape == (len(examples),)
    if len(examples):
        assert 0 <= examples.labels.min() <= examples.labels.max() < len(examples.class_names)
    assert all(isinstance(name, str) for name in examples.class_names)
    rows = np.asarray(examples.source._array)
    assert rows.dtype == np.float32
    assert rows.shape == (len(examples), *examples.shape)
    assert np.isfinite(rows).all(), "a row that is not finite in float32"
