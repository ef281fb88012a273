"""Sparse embeddings in many files, `part-00000.npz`, `part-00001.npz`, ...: more than memory holds.

Each is a file of `embedding_files`. Their order is that of their names.
"""

import glob
import os
import pathlib
from collections.abc import Iterable, Iterator

import scipy.sparse

from sparse_embed.common.arrays import read_npz
from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import user_path
from sparse_embed.common.reading import reading
from sparse_embed.experiments.evaluation.embedding_files import load_flag

PATTERN = "part-*.npz"


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
    return found


def count_rows(paths: Iterable[pathlib.Path]) -> int:
    """Returns the number of rows of all files, without reading them."""
    total = 0
    for path in paths:
        shape = read_npz(path, ("shape",), expected="sparse embeddings")["shape"]
        with reading(path, "sparse embeddings"):
            rows, _ = shape.tolist()
            total += int(rows)
    return total


def read_rows(flag: str, paths: Iterable[pathlib.Path]) -> Iterator[scipy.sparse.csr_array]:
    """Yields the rows of each file; errors name the flag and the file."""
    for path in paths:
        yield load_flag(flag, path, sparse=True).vectors
