"""Dense embeddings from somebody else's encoder, to train a sparse head on.

    part = split_by_class(load("lfw_dlib128.npz"), test=2875)
    for embeddings, labels in part.train.training_batches(batch_size=256, seed=0):
        ...

All of them are kept in memory.
"""

import dataclasses
import os
import pathlib

import numpy as np

from sparse_embed.common.arrays import read_npy, read_npz
from sparse_embed.common.failures import DataError
from sparse_embed.datasets.examples import ArraySource, Examples

PARTS = ("train", "validation", "test")


def load_parts(folder: str | os.PathLike[str]) -> dict[str, Examples]:
    """Reads `train.npy` and, where they are, `validation.npy` and `test.npy`, each with labels.

    A label has the same number in all of them; those of `train` come first.
    """
    paths = {name: pathlib.Path(folder) / f"{name}.npy" for name in PARTS}
    if not paths["train"].exists():
        raise DataError(f"{folder}: expected a folder that holds train.npy")
    parts = {name: load(path) for name, path in paths.items() if path.exists()}
    train = parts["train"]
    for name, part in parts.items():
        if part.shape != train.shape:
            raise DataError(
                f"{paths[name]}: expected vectors of {train.shape[0]} dimensions, as in "
                f"{paths['train']}, got {part.shape[0]}"
            )
        names = tuple(dict.fromkeys((*train.class_names, *part.class_names)))
        numbers = {label: number for number, label in enumerate(names)}
        own = np.array([numbers[label] for label in part.class_names], np.int32)
        parts[name] = dataclasses.replace(part, labels=own[part.labels], class_names=names)
    return parts


def load(
    path: str | os.PathLike[str], labels_path: str | os.PathLike[str] | None = None
) -> Examples:
    """Reads embeddings and their labels; the embeddings are left as they are, not normalised.

    Args:
        path: `.npz` with the arrays `embeddings` (n, dim) and `labels` (n,), and perhaps
            `identities`, the name of each label; or `.npy` with the embeddings alone, as the script
            `embed` writes it.
        labels_path: `.npy` with the labels that belong to a `.npy`; `<name>.labels.npy` beside it
            if None. Labels are integers or strings; classes are numbered in their order.
    """
    path = pathlib.Path(path)
    names = None
    if path.suffix == ".npz":
        if labels_path is not None:
            raise ValueError(
                f"labels_path={labels_path}: expected None, since {path} holds the labels"
            )
        labels_path = path
        found = read_npz(
            path, ("embeddings", "labels"), ("identities",), "an .npz of dense embeddings"
        )
        embeddings, labels, names = found["embeddings"], found["labels"], found.get("identities")
    elif path.suffix == ".npy":
        labels_path = pathlib.Path(labels_path or path.with_suffix(".labels.npy"))
        embeddings = read_npy(path, expected="an .npy of dense embeddings")
        if not labels_path.exists():
            raise DataError(f"{labels_path}: expected the labels of {path}, found no such file")
        labels = read_npy(labels_path, expected=f"an .npy of the labels of {path}")
    else:
        raise DataError(f"{path}: expected an .npz or .npy file of dense embeddings")
    if embeddings.ndim != 2 or embeddings.dtype.kind != "f" or not embeddings.size:
        raise DataError(
            f"{path}: expected embeddings (n, dim) of floats, got {embeddings.shape} of "
            f"{embeddings.dtype}"
        )
    if labels.shape != (len(embeddings),) or labels.dtype.kind not in "iuUS":
        raise DataError(
            f"{labels_path}: expected {len(embeddings)} labels, integers or strings, got "
            f"{labels.shape} of {labels.dtype}"
        )
    with np.errstate(over="ignore"):
        embeddings = np.asarray(embeddings, np.float32)
    broken = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if broken.size:
        raise DataError(
            f"{path}: {broken.size} rows are not finite float32, the first is {broken[0]}"
        )
    values, classes = np.unique(labels, return_inverse=True)
    if names is not None and (names.ndim != 1 or names.dtype.kind not in "iuUS"):
        raise DataError(
            f"{path}: expected `identities` to be names of the labels, got {names.shape} of "
            f"{names.dtype}"
        )
    if (
        names is not None
        and values.dtype.kind in "iu"
        and 0 <= values[0] <= values[-1] < len(names)
    ):
        values = names[values]
    return Examples(
        name=path.stem,
        shape=embeddings.shape[1:],
        source=ArraySource(embeddings),
        rows=np.arange(len(embeddings)),
        labels=classes.astype(np.int32),
        class_names=tuple(map(str, values.tolist())),
    )
