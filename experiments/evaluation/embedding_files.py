"""Embedding files, which the `embed*` scripts write and all search and evaluation scripts read.

Sparse embeddings are one CSR `.npz` that `scipy.sparse.load_npz` opens too, with two more arrays:
`labels` and `provenance` (JSON). Dense ones are a plain `.npy`, which can be memory-mapped, with
`<name>.labels.npy` and `<name>.json` beside it.
"""

import dataclasses
import json
import pathlib
import zipfile
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import atomic_path
from sparse_embed.flags.train_config import TrainConfig


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """Rows of embeddings with their labels and how they were made."""

    vectors: scipy.sparse.csr_array | np.ndarray
    labels: np.ndarray
    provenance: dict[str, Any]

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are a CSR matrix."""
        return scipy.sparse.issparse(self.vectors)

    @property
    def config(self) -> TrainConfig | None:
        """The config of their encoder's training run; None if `train` did not make it."""
        train = self.provenance.get("train")
        return TrainConfig.from_dict(train) if train else None

    @property
    def method(self) -> str:
        """Name of the method in records: that of `config`, or else "sparse" or "dense"."""
        if self.config is not None:
            return self.config.method
        return "sparse" if self.is_sparse else "dense"

    @property
    def setting(self) -> dict[str, Any]:
        """The setting that tells apart the points of the method's curve in records."""
        return self.config.setting if self.config else {"dims": int(self.vectors.shape[1])}


def save(path: pathlib.Path, embeddings: Embeddings) -> None:
    """Writes embeddings atomically; the suffix (.npz, .npy) must fit their kind.

    Raises:
        ValueError: the suffix does not fit, or there is not one label per row.
    """
    wanted = ".npz" if embeddings.is_sparse else ".npy"
    kind = "sparse" if embeddings.is_sparse else "dense"
    if path.suffix != wanted:
        raise ValueError(f"path={path}: expected a {wanted} file for {kind} embeddings")
    if embeddings.labels.shape != (embeddings.vectors.shape[0],):
        raise ValueError(
            f"labels of shape {embeddings.labels.shape}: expected one per row of the "
            f"{embeddings.vectors.shape} embeddings"
        )
    note = json.dumps(embeddings.provenance)
    if embeddings.is_sparse:
        csr = embeddings.vectors
        arrays = {name: getattr(csr, name) for name in ("data", "indices", "indptr", "shape")}
        with atomic_path(path) as temporary:
            np.savez(temporary, format=b"csr", **arrays, labels=embeddings.labels, provenance=note)
        return
    # The vectors come last: where they exist, their labels and provenance do too.
    with atomic_path(path.with_suffix(".json")) as temporary:
        temporary.write_text(note)
    with atomic_path(path.with_suffix(".labels.npy")) as temporary:
        np.save(temporary, embeddings.labels)
    with atomic_path(path) as temporary:
        np.save(temporary, embeddings.vectors)


def load(path: pathlib.Path) -> Embeddings:
    """Reads what `save` wrote; dense vectors are memory-mapped.

    Raises:
        ValueError: the file is not one that `save` wrote.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path) as file:
                csr = scipy.sparse.csr_array(
                    (file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"])
                )
                csr.check_format()
                return Embeddings(csr, file["labels"], json.loads(file["provenance"].item()))
        vectors = np.load(path, mmap_mode="r")
        labels = np.load(path.with_suffix(".labels.npy"))
        return Embeddings(vectors, labels, json.loads(path.with_suffix(".json").read_text()))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not an embedding file ({error})") from error


def load_flag(flag: str, path: pathlib.Path, sparse: bool | None = None) -> Embeddings:
    """Like `load`, but UsageError naming the flag if the file is absent or not of that kind."""
    if not path.exists():
        raise UsageError(f"--{flag}={path}: expected a file that exists")
    try:
        found = load(path)
    except ValueError as error:
        raise UsageError(f"--{flag}={path}: {error}") from error
    if sparse is not None and found.is_sparse != sparse:
        kind = "sparse" if sparse else "dense"
        raise UsageError(f"--{flag}={path}: expected {kind} embeddings")
    return found
