"""From a file of dense embeddings to a folder with their sparse index: what `sparsify` does."""

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.common.files import scratch_folder
from sparse_embed.common.memory import peak_bytes
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.records import Record
from sparse_embed.retrieval import SparseIndex

HEAD, INDEX, RECORD, PICTURE = "sparsifier.keras", "codes.index", "record.json", "trade_off.png"
_VALUES_AT_ONCE = 1 << 24  # of rows that are checked or encoded together
_QUERIES = 500
COMPARED = 100_000


def read_dense(path: pathlib.Path) -> np.ndarray:
    """Returns the (rows, d) floats of an `.npy` file, mapped into memory.

    Raises:
        DataError: it holds something else, or a row, which is named, is not finite.
    """
    x = read_npy(path, mmap=True, expected="an .npy of dense embeddings")
    if x.ndim != 2 or x.dtype.kind not in "fiu" or 0 in x.shape:
        raise DataError(f"{path}: expected numbers (rows, dimensions), got {x.shape} of {x.dtype}")
    if len(x) < 20:
        raise DataError(f"{path}: {len(x)} rows: expected at least 20, some of which are held out")
    first = 0
    for part in _parts(x):
        with np.errstate(over="ignore"):
            wrong = np.flatnonzero(~np.isfinite(np.asarray(part, np.float32)).all(axis=1))
        if wrong.size:
            raise DataError(
                f"{path}: row {first + wrong[0]} is not finite in float32: expected numbers"
            )
        first += len(part)
    return x


def _parts(x: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the rows in parts that take little memory, however long a row is."""
    size = max(1, _VALUES_AT_ONCE // x.shape[1])
    for first in range(0, len(x), size):
        yield x[first : first + size]


def read_labels(path: pathlib.Path, rows: int) -> np.ndarray:
    """Returns the labels of so many rows from an `.npy` file; DataError if it holds others."""
    labels = read_npy(path, expected="an .npy of labels")
    if labels.shape != (rows,) or labels.dtype.kind not in "iuUS":
        raise DataError(
            f"{path}: expected {rows} labels, integers or strings, got {labels.shape} of "
            f"{labels.dtype}"
        )
    return labels


def make(
    dense: np.ndarray,
    labels: np.ndarray | None,
    output: pathlib.Path,
    num_threads: int,
    compared: int = COMPARED,
    **arguments: Any,
) -> None:
    """Learns, transforms, builds the index and compares; prints what each stage took.

    The folder appears when all is done, or not at all. UsageError where `Sparsifier` refuses its
    arguments or the labels.

    Args:
        dense: (rows, d), may be memory-mapped.
        labels: (rows,) or None.
        output: the folder, which does not exist yet.
        num_threads: threads to build indexes with.
        compared: how many rows, drawn at random, are compared with other methods; 0 for none.
        **arguments: of `Sparsifier`.
    """
    from sparse_embed.experiments.evaluation import trade_off
    from sparse_embed.sparsify import Sparsifier
    from sparse_embed.sparsify.sparsifier import MOST_ROWS, unit_rows

    begin = time.perf_counter()
    order = np.random.default_rng(0).permutation(len(dense))
    count = min(_QUERIES, len(dense) // 10)
    queries, others = np.sort(order[:count]), order[count:]
    learned = np.sort(others[:MOST_ROWS])
    sparsifier = Sparsifier(progress=True, **arguments)
    try:
        sparsifier.fit(dense[learned], None if labels is None else labels[learned])
    except ValueError as error:
        raise UsageError(error) from error
    _say("learned", begin, f"{sparsifier.nonzeros_} non-zeros, F {sparsifier.flops_:.2f}")

    begin = time.perf_counter()
    batches = (sparsifier.transform(part) for part in _parts(dense))
    index = SparseIndex.build(batches, num_threads=num_threads, progress=True)
    peak = peak_bytes()
    size = index.nbytes / len(dense)
    _say("indexed", begin, f"{len(dense):,} rows, {size:.0f} bytes per row")

    found: list[Record] = []
    with scratch_folder(output) as folder:
        whole = folder / "whole"
        whole.mkdir()
        if compared:
            chosen = np.sort(others[:compared])
            found = trade_off.measure(
                unit_rows(dense[chosen]),
                sparsifier.transform(dense[chosen]),
                unit_rows(dense[queries]),
                sparsifier.transform(dense[queries]),
                num_threads,
            )
            print(trade_off.table(found), flush=True)
            trade_off.draw(found, whole / PICTURE)
        about = {
            "rows": len(dense),
            "dim": sparsifier.dim,
            "nonzeros": sparsifier.nonzeros_,
            "flops_per_row": sparsifier.flops_,
            "bytes_per_row": size,
            "contrast": sparsifier.contrast_,
            "peak_bytes": peak,
        }
        records.save_all(whole / RECORD, found, **about)
        sparsifier.save(whole / HEAD)
        index.save(whole / INDEX)
        whole.rename(output)


def _say(stage: str, begin: float, more: str) -> None:
    seconds, peak = time.perf_counter() - begin, peak_bytes() / 2**30
    print(f"{stage} in {seconds:.1f} s (peak {peak:.1f} GiB): {more}", flush=True)
