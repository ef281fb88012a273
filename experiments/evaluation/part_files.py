"""Sparse embeddings in many files, `part-00000.npz`, `part-00001.npz`, ...: more than memory holds.

Each is a file of `embedding_files`. Their order is that of their names, and rows are numbered
through; but in a folder that `embed_parts` wrote each row has the number of its example, since
examples that failed have no row.
"""

import glob
import os
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np
import scipy.sparse

from sparse_embed.common.arrays import read_npz
from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import user_path
from sparse_embed.common.reading import read_json, reading
from sparse_embed.experiments.evaluation.embedding_files import Embeddings, load_flag

PATTERN = "part-*.npz"
SETTING, FAILED = "setting.json", "failed.jsonl"  # of `embed_parts`, which finishes with the latter


def part_files(flag: str, value: str | None) -> list[pathlib.Path]:
    """Returns the files that a flag names: those of a folder that fit `PATTERN`, or of a glob.

    Raises:
        UsageError: there is none.
    """
    wanted = f"a folder that holds {PATTERN}, or a pattern of .npz files"
    if not value:
        raise UsageError(f"--{flag} is not given: expected {wanted}")
    path = user_path(flag, value, wanted)
    pattern = os.path.join(glob.escape(str(path)), PATTERN) if path.is_dir() else str(path)
    found = sorted(pathlib.Path(name) for name in glob.glob(pattern))
    if not found:
        raise UsageError(f"--{flag}={value}: expected {wanted}")
    if path.is_dir() and (path / SETTING).exists():
        _check_whole(flag, path)
    return found


def _check_whole(flag: str, folder: pathlib.Path) -> None:
    """Raises UsageError if `embed_parts` has not finished a folder, or a part of it is gone."""
    setting = read_json(folder / SETTING, "the setting of a folder of parts")
    with reading(folder / SETTING, "the setting of a folder of parts"):
        spans = divide(int(setting["examples"]), int(setting["part_examples"]))
    lacking = [
        number for number, span in enumerate(spans) if not _is_done(folder, number, len(span))
    ]
    if lacking or not (folder / FAILED).exists():
        what = f"part {lacking[0]} is missing" if lacking else f"{FAILED} is missing"
        raise UsageError(
            f"--{flag}={folder}: expected a folder that `embed_parts` has finished: {what}; call "
            "it again"
        )


def _is_done(folder: pathlib.Path, number: int, examples: int) -> bool:
    """Whether a part is there, or all of its examples failed."""
    if (folder / f"part-{number:05}.npz").exists():
        return True
    failed = folder / f"part-{number:05}.failed.json"
    return failed.exists() and len(read_json(failed, "examples that failed", list)) == examples


def divide(total: int, part_examples: int) -> list[range]:
    """Returns the numbers of the examples of each part; only the last one may be smaller."""
    starts = range(0, total, part_examples)
    return [range(start, min(start + part_examples, total)) for start in starts]


def count_rows(paths: Iterable[pathlib.Path]) -> int:
    """Returns the number of rows of all files, without reading them."""
    total = 0
    for path in paths:
        shape = read_npz(path, ("shape",), expected="sparse embeddings")["shape"]
        with reading(path, "sparse embeddings"):
            rows, _ = shape.tolist()
            total += int(rows)
    return total


def read_parts(flag: str, paths: Iterable[pathlib.Path]) -> Iterator[tuple[Embeddings, np.ndarray]]:
    """Yields each file with the ids of its rows; errors name the flag and the file."""
    begin = 0
    for path in paths:
        found = load_flag(flag, path, sparse=True)
        ids = np.arange(begin, begin + found.vectors.shape[0])
        note = found.provenance
        if "examples" in note and (path.parent / SETTING).exists():
            with reading(path, "a part that `embed_parts` wrote"):
                numbers = np.arange(note["first"], note["first"] + note["examples"])
                ids = np.setdiff1d(numbers, np.array(note["failed"], np.int64))
                if len(ids) != found.vectors.shape[0]:
                    raise ValueError(f"{found.vectors.shape[0]} rows of {len(ids)} examples")
        begin = int(ids[-1]) + 1
        yield found, ids


def read_rows(
    flag: str, paths: Iterable[pathlib.Path]
) -> Iterator[tuple[scipy.sparse.csr_array, np.ndarray]]:
    """Yields the rows of each file and their ids; errors name the flag and the file."""
    for found, ids in read_parts(flag, paths):
        yield found.vectors, ids
