"""From a file of dense embeddings to a folder with their sparse index: what `sparsify` does."""

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.failures import DataError
from sparse_embed.common.files import scratch_folder
from sparse_embed.common.memory import peak_bytes
from sparse_embed.experiments.evaluation import records
from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.retrieval import SparseIndex

HEAD, INDEX, RECORD, PICTURE = "sparsifier.keras", "codes.index", "record.json", "trade_off.png"
_BATCH = 1 << 16  # rows that are encoded together
_QUERIES = 500
_LEARNED = 200_000
COMPARED = 100_000


def read_dense(path: pathlib.Path) -> np.ndarray:
    """Returns the (rows, d) floats of an `.npy` file, mapped into memory.

    Raises:
        DataError: it holds something else, or a row, which is named, is not finite.
    """
    x = read_npy(path, mmap=True, expected="an .npy of dense embeddings")
    if x.ndim != 2 or x.dtype.kind != "f" or 0 in x.shape:
        raise DataError(f"{path}: expected floats (rows, dimensions), got {x.shape} of {x.dtype}")
    if len(x) < 20:
        raise DataError(f"{path}: {len(x)} rows: expected at least 20, some of which are held out")
    for first in range(0, len(x), _BATCH):
        part = x[first : first + _BATCH]
        # Beyond float32 it would be infinite, too.
        wrong = np.flatnonzero(~(np.abs(part) <= np.finfo(np.float32).max).all(axis=1))
        if wrong.size:
            raise DataError(f"{path}: row {first + wrong[0]} is not finite: expected numbers")
    return x


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
) -> list[Record]:
    """Learns, transforms, builds the index and compares; prints what each stage took.

    The folder appears when all is done, or not at all.

    Args:
        dense: (rows, d), may be memory-mapped.
        labels: (rows,) or None.
        output: the folder, which does not exist yet.
        num_threads: threads to build indexes with.
        compared: how many rows, drawn at random, are compared with other methods; 0 for none.
        **arguments: of `Sparsifier`.

    Returns:
        The records of `trade_off.measure`.
    """
    from sparse_embed.experiments.sparsifying import trade_off
    from sparse_embed.sparsify import Sparsifier

    begin = time.perf_counter()
    order = np.random.default_rng(0).permutation(len(dense))
    count = min(_QUERIES, len(dense) // 10)
    queries, others = np.sort(order[:count]), order[count:]
    learned = np.sort(others[:_LEARNED])
    sparsifier = Sparsifier(progress=True, **arguments)
    sparsifier.fit(dense[learned], None if labels is None else labels[learned])
    _say("learned", begin, f"{sparsifier.nonzeros_} non-zeros, F {sparsifier.flops_:.2f}")

    begin = time.perf_counter()

    def batches() -> Iterator[scipy.sparse.csr_array]:
        for first in range(0, len(dense), _BATCH):
            yield sparsifier.transform(dense[first : first + _BATCH])

    index = SparseIndex.build(batches(), num_threads=num_threads, progress=True)
    size = index.nbytes / len(dense)
    _say("indexed", begin, f"{len(dense):,} rows, {size:.0f} bytes per row")

    found: list[Record] = []
    with scratch_folder(output) as folder:
        whole = folder / "whole"
        whole.mkdir()
        if compared:
            chosen = np.sort(others[:compared])
            found = trade_off.measure(
                _unit(dense[chosen]),
                sparsifier.transform(dense[chosen]),
                _unit(dense[queries]),
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
            "peak_bytes": peak_bytes(),
        }
        records.save_all(whole / RECORD, found, **about)
        sparsifier.save(whole / HEAD)
        index.save(whole / INDEX)
        whole.rename(output)
    return found


def _say(stage: str, begin: float, more: str) -> None:
    seconds, peak = time.perf_counter() - begin, peak_bytes() / 2**30
    print(f"{stage} in {seconds:.1f} s (peak {peak:.1f} GiB): {more}", flush=True)


def _unit(rows: np.ndarray) -> np.ndarray:
    rows = np.asarray(rows, np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
