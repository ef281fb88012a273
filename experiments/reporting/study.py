"""A *study*: the records of a run in two files, small enough to be published with the code.

`records.jsonl` has a line for each of three kinds of things, in this order:

    {"provenance": {...}}  versions, hardware and revision
    {"train": {...}}       the flags of a training run
    {"record": {...}}      a record as in `core.records`, with its `architecture`; in place of
                           what other lines hold it has their numbers, and in `arrays` the names
                           that its raw results have in `records.npz`

An array is named by its content, so that records share it, and so that an interrupted `save` leaves
the study as it was.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from sparse_embed.common.arrays import read_npz
from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.reading import Content, reading
from sparse_embed.experiments.core.records import Record, check

RECORDS, ARRAYS = "records.jsonl", "records.npz"
_EXPECTED = "the records of a study"


def save(folder: pathlib.Path, records: Iterable[tuple[Record, dict[str, np.ndarray]]]) -> None:
    """Writes the records, with `architecture`, and their raw results."""
    shared: dict[str, dict[str, int]] = {"provenance": {}, "train": {}}
    lines, arrays = [], {}

    def place(kind: str, value: Any) -> int:
        return shared[kind].setdefault(json.dumps(value), len(shared[kind]))

    for record, raw in records:
        names = {key: _digest(array) for key, array in raw.items()}
        arrays.update({names[key]: array for key, array in raw.items()})
        note = dict(record["provenance"])
        short = {**record, "arrays": names, "time": note.pop("time")}
        short["provenance"] = place("provenance", note)
        flags = record.get("flags", {})
        if "train" in flags:
            short["flags"] = {**flags, "train": place("train", flags["train"])}
        lines.append(json.dumps({"record": short}))
    heads = [f'{{"{kind}": {value}}}' for kind, values in shared.items() for value in values]
    path = folder / ARRAYS
    kept = read_npz(path) if path.exists() else {}
    _save_arrays(path, {**kept, **arrays})
    with atomic_path(folder / RECORDS) as temporary:
        temporary.write_text("\n".join([*heads, *lines, ""]))
    if kept.keys() - arrays.keys():
        _save_arrays(path, arrays)


def load(folder: pathlib.Path) -> list[Record]:
    """Returns the records; `selection.arrays` reads their raw results.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / RECORDS
    found: list[Record] = []
    shared: dict[str, list[Any]] = {"provenance": [], "train": []}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        where = f"{path}:{number}"
        with reading(where, _EXPECTED):
            ((kind, value),) = dict(json.loads(line)).items()
            if kind in shared:
                shared[kind].append(value)
                continue
            if kind != "record":
                raise DataError(f"{where}: expected one of provenance, train, record: {kind!r}")
            value = dict(value)
            value["provenance"] = {
                "time": value.pop("time"),
                **shared["provenance"][value["provenance"]],
            }
            flags = value.get("flags", {})
            if "train" in flags:
                flags["train"] = shared["train"][flags["train"]]
            if not all(isinstance(name, str) for name in dict(value["arrays"]).values()):
                raise ValueError("arrays has other values than names")
        record = Content(where, value)
        check(where, record)
        if not isinstance(record["architecture"], str):
            raise DataError(f"{where}: expected {_EXPECTED}: architecture is no text")
        found.append(record)
    return found


def _digest(array: np.ndarray) -> str:
    head = f"{array.dtype.str} {array.shape} ".encode()
    return hashlib.blake2b(head + array.tobytes(), digest_size=9).hexdigest()


def _save_arrays(path: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
