"""The folder of evaluation records, which `evaluate_*` write and figures, claims and tables read.

A *record* is one method with one setting: `<name>.json`, a flat JSON object, and beside it
`<name>.npz`, the raw results (ranks, scores, hits), from which its *metrics*, the numbers measured,
can be computed again. A *figure* is a picture of records. Keys:

    name               of the files
    experiment         "megaface", "verification", "cifar100", "activations" or "gallery"
    data               which data it was measured on, such as "glyphs"
    method             a regularizer ("flops", "l1"), a baseline ("dense", "pca", ...) or "sdh";
                       "<method>_cut" if rows were cut to their largest values
    setting            tells apart the points of its curve: {"weight": 30}, {"bits": 256}; `keep` is
                       how many values cut rows keep, `keep_queries` queries if another number
    seed               of the training run of the encoder, or of the dense encoder of a baseline
    reranked           whether a shortlist was re-ranked with dense embeddings (megaface)
    recall_at_<k>, authors_recall_at_<k>, accuracy, val_at_far_<f>, precision_at_<k>_train, ...
    build_seconds, index_bytes (megaface)
    milliseconds_per_query, timed_queries, turns, other_load (megaface, if it was timed)
    dim, flops_per_row, activation_probability, suboptimality_ratio
    flags              of the script and, where there was one, of the training run
    fingerprint        of everything that decides the result: settings, content of input files
    provenance         versions, hardware, revision, time

A metric that a method does not have is absent. A record whose fingerprint is unchanged is not made
again.
"""

import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sparse_embed.common.arrays import read_npz
from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.provenance import provenance
from sparse_embed.common.reading import read_json, reading

Record = dict[str, Any]
_CUT = "_cut"  # ends the names of methods whose rows were cut
_EXPECTED = "an evaluation record"
_KINDS = {"name": str, "experiment": str, "data": str, "method": str, "setting": dict}
_HARDWARE = ("processor", "cores")


def record_name(key: Record, *more: Any) -> str:
    """Returns the file name of a record: its key and `more`, which tell it from all others."""
    setting = [f"{name}={value}" for name, value in key["setting"].items()]
    size = [key["distractors"]] if "distractors" in key else []
    seed = [f"seed={key['seed']}"] if "seed" in key else []
    parts = [key["experiment"], key["data"], *size, key["method"], *setting, *seed, *more]
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", "-".join(str(part) for part in parts if part != ""))


def is_cut(record: Mapping[str, Any]) -> bool:
    """Whether rows were cut to their largest values; its setting says how many they keep."""
    return "keep" in record["setting"]


def cut_method(trained: str) -> str:
    """Returns the name of a method whose encoders are cut."""
    return trained + _CUT


def trained_method(cut: str) -> str:
    """Returns the method whose encoders were cut: `cut_method` undone."""
    return cut.removesuffix(_CUT)


def update(
    folder: pathlib.Path,
    key: Record,
    files: Iterable[pathlib.Path],
    make: Callable[[], tuple[Record, dict[str, np.ndarray]]],
    *more_name: str,
) -> bool:
    """Makes and saves a record, unless it exists and nothing that decides it has changed.

    Args:
        folder: folder of the records.
        key: identifies and decides it: experiment, data, method, setting, flags.
        files: input files, whose content decides it too.
        make: returns its metrics and raw results.
        *more_name: further parts of its name, see `record_name`.

    Returns:
        Whether it was made.
    """
    name, mark = record_name(key, *more_name), fingerprint(key, files)
    path = folder / f"{name}.json"
    if path.exists() and read_json(path, _EXPECTED).get("fingerprint") == mark:
        print(f"{name}: unchanged")
        return False
    metrics, arrays = make()
    record = {"name": name, **key, **metrics, "fingerprint": mark, "provenance": provenance()}
    _save(path, record, arrays)
    print(f"{name}: {summary(record)}", flush=True)
    return True


def amend(folder: pathlib.Path, name: str, metrics: Record, arrays: dict[str, np.ndarray]) -> None:
    """Adds metrics and raw results to a record, in place of those of the same names."""
    record = _read(folder / f"{name}.json")
    kept = load_arrays(folder, record)
    _save(folder / f"{name}.json", {**record, **metrics}, {**kept, **arrays})


def _save(path: pathlib.Path, record: Record, arrays: dict[str, np.ndarray]) -> None:
    # The raw results come first: where there is a record, they exist too.
    with atomic_path(path.with_suffix(".npz")) as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1))


def load(folder: pathlib.Path, experiment: str | None = None) -> list[Record]:
    """Reads all records, or those of one experiment, in the order of their names."""
    found = [_read(path) for path in sorted(folder.glob("*.json"))]
    return [record for record in found if experiment in (None, record["experiment"])]


def _read(path: pathlib.Path) -> Record:
    """Returns a record; DataError if it is damaged, or if a key is asked for that it lacks."""
    record: Record = read_json(path, _EXPECTED)
    check(path, record)
    if record["name"] != path.stem:
        raise DataError(f"{path}: expected {_EXPECTED}: its name is {record['name'][:80]!r}")
    return record


def check(where: str | pathlib.Path, record: Record) -> None:
    """Raises DataError, with `where` it is from, unless it is a record."""
    for key, kind in _KINDS.items():
        if not isinstance(record[key], kind):
            value = str(record[key])[:40]
            raise DataError(
                f"{where}: expected {_EXPECTED}: {key} is {value!r}, no {kind.__name__}"
            )
    with reading(where, _EXPECTED):
        note = record["provenance"]
        _ = note["time"][:10], note["revision"], [note["hardware"][key] for key in _HARDWARE]


def load_arrays(folder: pathlib.Path, record: Record) -> dict[str, np.ndarray]:
    """Reads the raw results of a record."""
    return read_npz(folder / f"{record['name']}.npz", expected="the raw results of a record")


def fingerprint(key: Record, files: Iterable[pathlib.Path]) -> str:
    """Returns a digest of a JSON object and the content of files."""
    digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=16)
    for path in files:
        status = path.stat()
        digest.update(_content_digest(path, status.st_size, status.st_mtime_ns))
    return digest.hexdigest()


@functools.cache
def _content_digest(path: pathlib.Path, size: int, modified: int) -> bytes:
    """Digest of a file; size and time tell the cache of a change."""
    del size, modified
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 24):
            digest.update(block)
    return digest.digest()


def summary(record: Record) -> str:
    """The metrics of a record in one line."""
    names = [
        name
        for name, value in record.items()
        if isinstance(value, float) and not name.startswith("authors")
    ]
    return ", ".join(f"{name} {record[name]:.4g}" for name in names)


def save_all(path: pathlib.Path, records: list[Record], **more: Any) -> None:
    """Writes records that no figure needs, and `more` about them, to one JSON file."""
    content = {**more, "records": records, "provenance": provenance()}
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1))
