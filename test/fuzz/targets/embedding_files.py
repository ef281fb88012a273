"""Embedding files of the `embed*` scripts: sparse `.npz`, dense `.npy` with labels and JSON."""

import json
import pathlib

import numpy as np
import scipy.sparse
from fuzz import arrays
from fuzz.mutations import Parts

from sparse_embed.experiments.core import embedding_files
from sparse_embed.flags.train_config import TrainConfig
from sparse_embed.retrieval import DenseSearch, SparseIndex

TOKENS = arrays.TOKENS


def seeds() -> list[Parts]:
    """Sparse and dense ones: whole files, and the arrays in them."""
    dense = np.arange(12, dtype=np.float32).reshape(4, 3) % 5
    csr = scipy.sparse.csr_array(dense)
    labels = np.array([0, 1, 1, 2])
    note = json.dumps({"train": TrainConfig().to_dict(), "encoder": "a.keras"})
    members = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr}
    members |= {"shape": np.array(csr.shape), "format": np.array(b"csr"), "labels": labels}
    sparse: Parts = {}
    for name, array in members.items():
        sparse |= arrays.pieces(name, array)
    named = {**sparse, **arrays.pieces("provenance", np.array(note))}
    plain = {**sparse, **arrays.pieces("provenance", np.array("{}"))}
    whole = {"sparse.npz": arrays.zipped(arrays.join(plain))}
    pieces = {**arrays.pieces("dense", dense), **arrays.pieces("dense.labels", labels)}
    return [
        named,
        plain,
        {**sparse, "provenance.text": note.encode()},
        whole,
        {"sparse.npz": arrays.zipped(arrays.join(plain), compress=True)},
        {**pieces, "dense.json": note.encode()},
        {**pieces, "dense.json": b'{"a": [1]}'},
        {**arrays.join(pieces), "dense.json": b"{}"},
    ]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Reads the embeddings and asks all that scripts ask of them; then searches in them."""
    joined = arrays.join(parts)
    if "data.npy" in joined:
        joined = {"sparse.npz": arrays.zipped(joined)}
    arrays.write(joined, folder)
    found = embedding_files.load(folder / ("sparse.npz" if "sparse.npz" in joined else "dense.npy"))
    rows, dims = found.vectors.shape
    assert found.labels.shape == (rows,), "not one label per row"
    assert isinstance(found.method, str)
    assert isinstance(found.setting, dict)
    if dims > 10**6:  # an index takes memory for each dimension, as it says
        return
    if found.is_sparse:
        assert SparseIndex.build(found.vectors).shape == (rows, dims)
    else:
        assert DenseSearch(found.vectors).shape == (rows, dims)
