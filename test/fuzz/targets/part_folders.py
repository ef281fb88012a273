"""Folders that `embed_parts` wrote, and others that hold embeddings in parts."""

import json
import pathlib

import numpy as np
import scipy.sparse
from fuzz import arrays
from fuzz.mutations import Parts

from sparse_embed.common.failures import Failure
from sparse_embed.experiments.core import part_files
from sparse_embed.experiments.exporting.rows import open_rows

ALLOWED = (Failure, OSError)
TOKENS = [b'"first"', b'"examples"', b'"failed"', b'"part_examples"', *arrays.TOKENS]


def seeds() -> list[Parts]:
    """Three parts of four examples, of which some failed; and parts that somebody else made."""
    abouts = [{"first": 4 * number, "examples": 4, "failed": []} for number in range(2)]
    abouts[1]["failed"] = [5]
    setting = {"examples": 12, "part_examples": 4, "split": "test"}
    failed = [{"example": number, "input": "a.png", "reason": "cut"} for number in range(8, 12)]
    ours = {
        **_part(0, 4, abouts[0]),
        **_part(1, 3, abouts[1]),
        "part-00002.failed.json": json.dumps(failed).encode(),
        part_files.FAILED: b"",
        part_files.SETTING: json.dumps(setting).encode(),
    }
    return [ours, {**_part(0, 3, {}), **_part(7, 2, {})}]


def _part(number: int, rows: int, about: dict) -> Parts:
    csr = scipy.sparse.csr_array(np.eye(rows, 5, dtype=np.float32) * (number + 1))
    members = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr}
    members |= {"shape": np.array(csr.shape), "labels": np.arange(rows)}
    made = {f"{number}.provenance.text": json.dumps(about).encode()}
    for name, array in members.items():
        made |= arrays.pieces(f"{number}.{name}", array)
    return made


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Rows have ids that rise, and the labels of their part."""
    files: Parts = {}
    zips: dict[str, Parts] = {}
    for name, content in arrays.join(parts).items():
        number, _, member = name.partition(".")
        if number.isdigit():
            zips.setdefault(f"part-{number:0>5}.npz", {})[member] = content
        else:
            files[name] = content
    arrays.write(files | {name: arrays.zipped(content) for name, content in zips.items()}, folder)
    paths = part_files.part_files("parts", str(folder))
    found = list(part_files.read_parts("parts", paths))
    ids = np.concatenate([ids for _, ids in found])
    assert len(ids) == part_files.count_rows(paths)
    assert ids[0] >= 0
    assert (np.diff(ids) > 0).all(), "ids that do not rise"
    if found[0][0].vectors.shape[1] > 10**6:  # an index takes memory for each dimension
        return
    rows = open_rows(folder)
    np.testing.assert_array_equal(rows.index.ids, ids)
    labels = np.concatenate([part.labels for part, _ in found]).tolist()
    assert rows.payloads_of(ids) == [{"label": label} for label in labels]
