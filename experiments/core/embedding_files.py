"""Embedding files, which the `embed*` scripts write and all search and evaluation scripts read.

Sparse embeddings are one CSR `.npz` that `scipy.sparse.load_npz` opens too, with two more arrays:
`labels` and `provenance` (JSON). Dense ones are a plain `.npy`, which can be memory-mapped, with
`<name>.labels.npy` and `<name>.json` beside it.
"""

import dataclasses
import json
import pathlib
import zlib
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.arrays import read_npy, read_npz
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.common.files import atomic_path, unfinished
from sparse_embed.common.reading import Content, parse_json, read_json, reading
from sparse_embed.experiments.core.records import cut_method
from sparse_embed.flags.train_config import TrainConfig
from sparse_embed.retrieval.inputs import canonical_csr

_EXPECTED = "an embedding file, as `embed` writes it"
_KINDS = {"data": "fiub", "indices": "iu", "indptr": "iu", "shape": "iu"}
_MOST_DIMS = 1 << 24  # some measures keep numbers for each dimension, empty ones too
_MARK = "mark"  # in the JSON beside dense embeddings
_BLOCK = 1 << 24  # values that are checked at once


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """Rows of embeddings with their labels and how they were made."""

    vectors: scipy.sparse.csr_array | np.ndarray
    labels: np.ndarray
    provenance: dict[str, Any]

    @property
    def is_sparse(self) -> bool:
        """Whether the vectors are a CSR matrix."""
        sparse: bool = scipy.sparse.issparse(self.vectors)
        return sparse

    @property
    def config(self) -> TrainConfig | None:
        """The config of their encoder's training run; None if `train` did not make it."""
        train = self.provenance.get("train")
        return TrainConfig.from_dict(train) if train else None

    @property
    def method(self) -> str:
        """Name of the method in records: that of `config`, or else "sparse" or "dense"."""
        whole = "sparse" if self.is_sparse else "dense"
        if self.config is not None:
            whole = self.config.method
        return whole if self.keep is None else cut_method(whole)

    @property
    def setting(self) -> dict[str, Any]:
        """The setting that tells apart the points of the method's curve in records."""
        whole = self.config.setting if self.config else {"dims": int(self.vectors.shape[1])}
        return whole if self.keep is None else {**whole, "keep": self.keep}

    @property
    def keep(self) -> int | None:
        """How many of its largest values each row was cut to; None if to none."""
        return self.provenance.get("keep")

    @property
    def seed(self) -> int:
        """Seed of that training run; 0 if `train` did not make it."""
        return self.config.optimization.seed if self.config else 0


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
    vectors, labels, note = embeddings.vectors, embeddings.labels, embeddings.provenance
    if embeddings.is_sparse:
        arrays = {name: getattr(vectors, name) for name in ("data", "indices", "indptr", "shape")}
        with atomic_path(path) as temporary:
            np.savez(temporary, format=b"csr", **arrays, labels=labels, provenance=json.dumps(note))
        return
    # All three are written before one of them takes its place. If a kill comes between, the mark
    # tells `load`, which finds the others where they were written.
    with (
        atomic_path(path.with_suffix(".json")) as about,
        atomic_path(path.with_suffix(".labels.npy")) as named,
        atomic_path(path) as rows,
    ):
        np.save(rows, vectors)
        np.save(named, labels)
        about.write_text(json.dumps({**note, _MARK: _mark(vectors, labels)}))


def load(path: pathlib.Path) -> Embeddings:
    """Reads what `save` wrote; dense vectors are memory-mapped.

    Raises:
        DataError: the file is not one that `save` wrote: damaged, without a label for each row, or
            with values that are no finite floats.
    """
    if path.suffix == ".npz":
        vectors, more = read_csr(path, ("labels", "provenance"))
        with reading(path, _EXPECTED):
            note = parse_json(more["provenance"].item())
        found = Embeddings(vectors, more["labels"], note)
    else:
        found = _load_dense(path)
    _check(path, found)
    return found


def _load_dense(path: pathlib.Path) -> Embeddings:
    """Reads the three files of dense embeddings, which must be of one call of `save`."""
    vectors = read_npy(path, mmap=True, expected=_EXPECTED)
    names = [path.with_suffix(suffix) for suffix in (".labels.npy", ".json")]
    for labels_path in (names[0], unfinished(names[0])):
        for note_path in (names[1], unfinished(names[1])):
            if labels_path.exists() and note_path.exists():
                labels = read_npy(labels_path, expected=f"the labels of {path}")
                note = read_json(note_path, f"the provenance of {path}")
                if note.pop(_MARK, None) in (None, _mark(vectors, labels)):
                    return Embeddings(vectors, labels, note)
    for name in names:
        if not name.exists():
            raise DataError(f"{name}: expected beside {path}, as `embed` writes it; it is not")
    raise DataError(f"{path}: expected the rows of {names[0]}: embed them again")


def read_csr(
    path: pathlib.Path, more: tuple[str, ...] = ()
) -> tuple[scipy.sparse.csr_array, Content]:
    """Reads a CSR matrix as `scipy.sparse.save_npz` writes it; returns it and `more` arrays."""
    arrays = read_npz(path, (*_KINDS, *more), expected=_EXPECTED)
    with reading(path, _EXPECTED):
        types = {name: arrays[name].dtype for name in _KINDS}
        if any(types[name].kind not in kinds for name, kinds in _KINDS.items()):
            raise ValueError(f"it holds arrays of {', '.join(map(str, types.values()))}")
        shape = tuple(arrays["shape"].tolist())
        if len(shape) != 2 or not 0 < shape[1] <= _MOST_DIMS:
            raise ValueError(f"a matrix of shape {shape}, with 1 to {_MOST_DIMS} columns expected")
        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        vectors = scipy.sparse.csr_array(parts, shape=shape)
        canonical_csr("it", vectors)  # which an index asks of it too
    return vectors, arrays


def _mark(vectors: np.ndarray, labels: np.ndarray) -> int:
    """Returns a checksum of the labels, and of the first and last rows, which is quick."""
    parts = (vectors[:16], vectors[-16:], labels)
    return zlib.crc32(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))


def _check(path: pathlib.Path, found: Embeddings) -> None:
    """Raises DataError unless there are rows of finite floats, each with a label, and a note."""
    vectors, labels = found.vectors, found.labels
    # Codes may be integers; re-ranking reads halves and floats where they lie, no others.
    known = found.is_sparse or vectors.dtype in (np.float16, np.float32)
    if len(vectors.shape) != 2 or not min(vectors.shape) or not known:
        raise DataError(
            f"{path}: expected rows of float16 or float32, got {vectors.shape} of {vectors.dtype}"
        )
    if labels.shape != vectors.shape[:1] or labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}: expected {vectors.shape[0]} labels, one integer for each row, got "
            f"{labels.shape} of {labels.dtype}"
        )
    values: Any = vectors.data if found.is_sparse else vectors
    step = max(1, _BLOCK * len(values) // max(1, values.size))
    for start in range(0, len(values), step):  # a mapped file is not copied
        if not np.isfinite(values[start : start + step]).all():
            raise DataError(f"{path}: expected finite numbers, found NaN or infinity")
    with reading(path, _EXPECTED):
        if not isinstance(found.provenance, dict):
            raise ValueError("its provenance is no JSON object")
        found.config  # noqa: B018 - it can be read
        if found.keep is not None and (type(found.keep) is not int or found.keep < 1):
            raise ValueError(f"keep is {str(found.keep)[:40]!r}, no integer >= 1")


def load_flag(flag: str, path: pathlib.Path, sparse: bool | None = None) -> Embeddings:
    """Like `load`, but errors name the flag too; UsageError if they are of the other kind."""
    if not path.exists():
        raise UsageError(f"--{flag}={path}: expected a file that exists")
    try:
        found = load(path)
    except DataError as error:
        raise DataError(f"--{flag}={path}: {str(error).removeprefix(f'{path}: ')}") from error
    if sparse is not None and found.is_sparse != sparse:
        kind = "sparse" if sparse else "dense"
        raise UsageError(f"--{flag}={path}: expected {kind} embeddings")
    return found
