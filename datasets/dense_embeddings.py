"""Dense embeddings from somebody else's encoder, on which a sparse head can be learned.

    part = split_by_class(load("lfw_dlib128.npz"), test=2875)
    for embeddings, labels in training_batches(part.train, batch_size=256, seed=0):
        ...

All of them are kept in memory.
"""

import os
import pathlib

import numpy as np

from sparse_embed.datasets.examples import (
    ArraySource,
    Examples,
    evaluation_batches,
    split_by_class,
    training_batches,
)

__all__ = ["evaluation_batches", "load", "split_by_class", "training_batches"]


def load(
    path: str | os.PathLike[str], labels_path: str | os.PathLike[str] | None = None
) -> Examples:
    """Reads embeddings and their labels; the embeddings are left as they are, not normalised.

    Args:
        path: `.npz` with the arrays `embeddings` (n, dim) and `labels` (n,), and perhaps
            `identities`, the name of each label; or `.npy` with the embeddings alone.
        labels_path: `.npy` with the labels, needed with a `.npy`. Labels are integers or strings;
            classes are numbered in their order.
    """
    path = pathlib.Path(path)
    names = None
    if path.suffix == ".npz":
        if labels_path is not None:
            raise ValueError(f"labels_path={labels_path}: expected None, {path} has the labels")
        with np.load(path, allow_pickle=False) as arrays:
            absent = {"embeddings", "labels"} - set(arrays.files)
            if absent:
                raise ValueError(f"{path}: no array {min(absent)!r}, only {arrays.files}")
            embeddings, labels = arrays["embeddings"], arrays["labels"]
            names = arrays["identities"] if "identities" in arrays.files else None
    else:
        if labels_path is None:
            raise ValueError(f"labels_path=None: expected the .npy file of the labels of {path}")
        embeddings = np.load(path, allow_pickle=False)
        labels = np.load(labels_path, allow_pickle=False)
    if embeddings.ndim != 2 or embeddings.dtype.kind != "f":
        raise ValueError(
            f"{path}: expected embeddings (n, dim) of floats, got {embeddings.shape} of "
            f"{embeddings.dtype}"
        )
    if labels.shape != (len(embeddings),) or labels.dtype.kind not in "iuUS":
        raise ValueError(
            f"{labels_path or path}: expected {len(embeddings)} labels, integers or strings, got "
            f"{labels.shape} of {labels.dtype}"
        )
    broken = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if broken.size:
        raise ValueError(f"{path}: {broken.size} rows are not finite, the first is {broken[0]}")
    values, classes = np.unique(labels, return_inverse=True)
    if (
        names is not None
        and values.dtype.kind in "iu"
        and 0 <= values[0] <= values[-1] < len(names)
    ):
        values = names[values]
    return Examples(
        name=path.stem,
        shape=embeddings.shape[1:],
        source=ArraySource(np.asarray(embeddings, np.float32)),
        rows=np.arange(len(embeddings)),
        labels=classes.astype(np.int32),
        class_names=tuple(map(str, values.tolist())),
    )
