"""What is exported: the rows of an index or of embedding files, their ids, and a payload of each.

A payload is a JSON object that the database keeps beside a row. It comes from one of

    labels.npy      integers: id i gets {"label": labels[i]}
    payload.jsonl   a JSON object per line: line i, from 0, belongs to id i; or, if the lines have a
                    key "id", to that id, and the rest of the line is the payload
    the labels that `embed` writes into its own files, if nothing else is given
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.arrays import read_npy, read_npz
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.common.reading import parse_json
from sparse_embed.experiments.core.embedding_files import read_csr
from sparse_embed.experiments.core.part_files import part_files, read_parts
from sparse_embed.experiments.core.records import fingerprint
from sparse_embed.retrieval import SparseIndex

Payload = dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Payloads:
    """The payload of each id: labels, or lines of JSON.

    Attributes:
        labels: of id i at place i, or of each of `ids`; None if there are lines.
        lines: of JSON.
        ids: rising; None if label or line i belongs to id i.
        order: the line of each of `ids`.
    """

    labels: np.ndarray | None = None
    lines: tuple[bytes, ...] = ()
    ids: np.ndarray | None = None
    order: np.ndarray | None = None

    def of(self, ids: np.ndarray) -> list[Payload]:
        """Returns the payloads of some ids, each of which must have one."""
        places = ids if self.ids is None else np.searchsorted(self.ids, ids)
        if self.labels is not None:
            return [{"label": label} for label in self.labels[places].tolist()]
        if self.order is None:
            return [json.loads(self.lines[place]) for place in places.tolist()]
        found = [json.loads(self.lines[place]) for place in self.order[places]]
        return [{key: value for key, value in line.items() if key != "id"} for line in found]

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Returns those of the ids that have no payload."""
        if self.ids is not None:
            return np.setdiff1d(ids, self.ids)
        return ids[ids >= (len(self.lines) if self.labels is None else len(self.labels))]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows to export.

    Attributes:
        index: has the rows and their ids.
        payloads: None if the rows have none.
        mark: tells this content from any other.
    """

    index: SparseIndex
    payloads: Payloads | None = None
    mark: str = ""

    def payloads_of(self, ids: np.ndarray) -> list[Payload]:
        """Returns the payload of each id, None where there are none."""
        return [None] * len(ids) if self.payloads is None else self.payloads.of(ids)


def open_rows(source: pathlib.Path, payload: pathlib.Path | None = None) -> Rows:
    """Opens what `--source` and `--payload` name.

    Args:
        source: an index that was saved (its ids are kept), a CSR matrix (`.npz`; row i gets id i),
            or a folder of `part-*.npz`, whose rows have the ids that `part_files` gives them.
        payload: see above.
    """
    files = [source]
    payloads = None
    if source.is_dir():
        files = part_files("source", str(source))
        index, payloads = _of_parts(files)
    elif source.suffix == ".npz":
        index = SparseIndex.build(read_csr(source)[0])
        labels = read_npz(source, (), optional=("labels",)).get("labels")
        payloads = None if labels is None else Payloads(labels=labels)
    else:
        index = SparseIndex.load(source)
    if payload is not None:
        payloads = read_payloads(payload)
        files.append(payload)
    if payloads is not None:
        missing = payloads.missing(index.ids)
        if len(missing):
            raise UsageError(
                f"--payload={payload}: expected a payload for each of {len(index)} rows: "
                f"{len(missing)} have none, such as that of id {missing[0]}"
            )
    return Rows(index, payloads, fingerprint({"rows": len(index)}, files))


def _of_parts(files: list[pathlib.Path]) -> tuple[SparseIndex, Payloads]:
    """Returns the rows of a folder of parts, and their labels."""
    found: list[tuple[np.ndarray, np.ndarray]] = []

    def rows() -> Iterator[tuple[scipy.sparse.csr_array, np.ndarray]]:
        for part, ids in read_parts("source", files):
            found.append((part.labels, ids))
            yield part.vectors, ids

    index = SparseIndex.build(rows())
    labels, ids = map(np.concatenate, zip(*found, strict=True))
    return index, Payloads(labels=labels, ids=ids)


def read_payloads(path: pathlib.Path) -> Payloads:
    """Reads payloads and checks all of them, so that a broken line does not end an export."""
    if path.suffix == ".npy":
        labels = read_npy(path, expected="labels")
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise DataError(
                f"{path}: expected integers, one for each row, got {labels.shape} of {labels.dtype}"
            )
        return Payloads(labels=labels)
    if path.suffix != ".jsonl":
        raise UsageError(f"--payload={path}: expected a .jsonl file, or labels as .npy")
    lines = tuple(path.read_bytes().splitlines())
    ids = [_id(path, number, line) for number, line in enumerate(lines, start=1)]
    named = [id for id in ids if id is not None]
    if not named:
        return Payloads(lines=lines)
    if len(named) < len(lines) or len(set(named)) < len(named):
        raise DataError(
            f'{path}: expected an "id" of its own on every line, or on none: {len(named)} of '
            f"{len(lines)} lines have one, {len(set(named))} different ones"
        )
    array = np.array(named, np.int64)
    order = np.argsort(array)
    return Payloads(lines=lines, ids=array[order], order=order)


def _id(path: pathlib.Path, number: int, line: bytes) -> int | None:
    """Returns the id on a line, if it has one."""
    try:
        content = parse_json(line.decode("utf-8-sig"))
        if not isinstance(content, dict):
            raise ValueError(f"got {content!r:.40}")
        _check("", content)
    except ValueError as error:
        raise DataError(f"{path}: line {number}: expected a JSON object: {error}") from error
    id = content.get("id")
    if id is not None and (type(id) is not int or not 0 <= id < 2**63):
        raise DataError(f'{path}: line {number}: "id" is {id!r:.40}: expected an integer >= 0')
    return id


def _check(where: str, value: Any) -> None:
    """Raises ValueError naming the first value that is JSON to Python, but not to databases."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if (wanted := _wanted(key)) is not None:
                raise ValueError(f"{where}[{key!r:.80}]: expected {wanted}")
            _check(f"{where}.{key}" if where else key, inside)
    elif isinstance(value, list):
        for place, inside in enumerate(value):
            _check(f"{where}[{place}]", inside)
    elif (wanted := _wanted(value)) is not None:
        raise ValueError(f"{where}={value!r:.80}: expected {wanted}")


def _wanted(value: Any) -> str | None:
    """Returns what databases want in place of a text or a number; None if it is right."""
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return "an integer of 64 bits"
    if isinstance(value, str):
        if "\0" in value:
            return "text without zeros"
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            return "text that UTF-8 can hold"
    return None
