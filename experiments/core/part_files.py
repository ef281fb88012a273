"""Sparse embeddings in many files, `part-00000.npz`, `part-00001.npz`, ...: more than memory holds.

Each is a file of `embedding_files`. Their order is that of their names, and rows are numbered
through; but in a folder that `embed_parts` wrote each row has the number of its example, since
examples that failed have no row.
"""

import glob
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.arrays import read_npz
from sparse_embed.common.checks import check_number
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.common.files import user_path
from sparse_embed.common.reading import read_json, reading
from sparse_embed.experiments.core.embedding_files import Embeddings, load_flag

PATTERN = "part-*.npz"
SETTING, FAILED = "setting.json", "failed.jsonl"  # of `embed_parts`, which finishes with the latter
_MOST = 2**62  # ids of the parts after it are integers of 64 bits too


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
        examples, part_examples = (
            check_number(name, setting[name], integer=True, minimum=1, maximum=_MOST)
            for name in ("examples", "part_examples")
        )
    spans = enumerate(divide(examples, part_examples))
    lacking = next((number for number, span in spans if not _is_done(folder, number, span)), None)
    if lacking is not None or not (folder / FAILED).exists():
        what = f"{FAILED} is missing" if lacking is None else f"part {lacking} is missing"
        raise UsageError(
            f"--{flag}={folder}: expected a folder that `embed_parts` has finished: {what}; call "
            "it again"
        )


def _is_done(folder: pathlib.Path, number: int, span: range) -> bool:
    """Whether a part is there, or all of its examples failed."""
    if (folder / f"part-{number:05}.npz").exists():
        return True
    failed = folder / f"part-{number:05}.failed.json"
    return failed.exists() and len(read_json(failed, "examples that failed", list)) == len(span)


def divide(total: int, part_examples: int) -> Iterator[range]:
    """Yields the numbers of the examples of each part; only the last one may be smaller."""
    for start in range(0, total, part_examples):
        yield range(start, min(start + part_examples, total))


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
    begin, dims = 0, None
    for path in paths:
        found = load_flag(flag, path, sparse=True)
        rows, width = found.vectors.shape
        if dims not in (None, width):
            raise DataError(
                f"--{flag}: {path}: {width} dimensions: expected {dims}, as in the parts before"
            )
        dims, ids = width, np.arange(begin, begin + rows)
        if "examples" in found.provenance and (path.parent / SETTING).exists():
            with reading(path, "a part that `embed_parts` wrote"):
                ids = _numbers(found.provenance, rows, begin)
        begin = int(ids[-1]) + 1
        yield found, ids


def _numbers(note: Mapping[str, Any], rows: int, least: int) -> np.ndarray:
    """Returns the numbers of a part's examples that did not fail, rising; ValueError if unfit.

    Args:
        note: what the part says of them.
        rows: how many there are.
        least: the smallest that no part before has.
    """
    first = check_number("first", note["first"], integer=True, minimum=least, maximum=_MOST)
    examples = check_number("examples", note["examples"], integer=True, minimum=1, maximum=_MOST)
    failed = note["failed"]
    if not isinstance(failed, list):
        raise ValueError(f"failed={failed!r:.80}: expected a list of examples")
    for place, number in enumerate(failed):
        last = first + examples - 1
        name = f"failed[{place}]"
        check_number(name, number, integer=True, minimum=first, maximum=last)
    if len(set(failed)) < len(failed):
        raise ValueError(f"failed holds {max(failed, key=failed.count)} twice: expected it once")
    if examples != rows + len(failed):
        wanted = f"{rows + len(failed)}, the rows and those that failed"
        raise ValueError(f"examples={examples}: expected {wanted}")
    return np.setdiff1d(np.arange(first, first + examples), np.array(failed, np.int64))


def read_rows(
    flag: str, paths: Iterable[pathlib.Path]
) -> Iterator[tuple[scipy.sparse.csr_array, np.ndarray]]:
    """Yields the rows of each file and their ids; errors name the flag and the file."""
    for found, ids in read_parts(flag, paths):
        yield found.vectors, ids
