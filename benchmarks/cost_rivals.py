"""What exhaustive dense search and IVF-PQ take, measured at one size and scaled to others."""

import dataclasses
import functools
from typing import Any

import numpy as np
from cost_formula import fit_relative
from search_speed import recall
from workload import Workload, make_workload

from sparse_embed.common.timing import timed
from sparse_embed.experiments.core.records import Record
from sparse_embed.retrieval import BASELINES, DenseSearch, IVFPQSearch

DENSE_BATCH = 64  # queries of a call: a matrix product reads the rows once for all of them
_NPROBES = (4, 16, 64, 256)
_NLISTS = (256, 1024)
_ENOUGH = 0.01  # recall that more lists would add


def measure(rows: int, dims: int, nnz: int, queries: int, k: int, num_threads: int) -> list[Record]:
    """Times both on dense embeddings of made-up rows, one thread.

    Args:
        rows: of the database.
        dims: see `make_workload`.
        nnz: see `make_workload`.
        queries: to time.
        k: results per query.
        num_threads: threads that build.
    """
    work = Workload(*make_workload(rows, dims, nnz, queries), k, None)
    database, asked = work.dense
    dense = DenseSearch(database)
    right = dense.search(asked, k)[1]
    found = [
        {
            "method": "dense",
            "batch": batch,
            "milliseconds": _median_ms(dense, asked, k, batch),
            **_facts(dense, 1.0),
        }
        for batch in (1, min(DENSE_BATCH, queries))
    ]
    for nlist in _NLISTS:
        make = functools.partial(IVFPQSearch, database, nlist=nlist, num_threads=num_threads)
        search, seconds = timed(make)
        for nprobe in sorted({min(n, search.settings["nlist"]) for n in _NPROBES}):
            search.nprobe = nprobe
            share = recall(list(search.search(asked, k)[1]), list(right))
            taken = _median_ms(search, asked, k, 1)
            facts = _facts(search, share)
            found.append(
                {
                    "method": "ivfpq",
                    "milliseconds": taken,
                    "build_seconds": seconds,
                    **search.settings,
                    **facts,
                }
            )
    return [record | {"k": k, "label": BASELINES[record["method"]].look.label} for record in found]


def _median_ms(search: Any, asked: np.ndarray, k: int, batch: int) -> float:
    parts = [asked[i : i + batch] for i in range(0, len(asked) - batch + 1, batch)]
    taken = [timed(functools.partial(search.search, part, k))[1] for part in parts]
    return 1e3 * float(np.median(taken)) / batch


def _facts(search: Any, share: float) -> Record:
    rows, dims = search.shape
    return {
        "rows": rows,
        "dense_dims": dims,
        "bytes_per_row": search.nbytes / rows,
        "recall": share,
    }


@dataclasses.dataclass(frozen=True)
class Dense:
    """Exhaustive search: every row costs the same."""

    microseconds_per_row: float
    microseconds_per_row_in_batches: float
    bytes_per_row: float

    @classmethod
    def of(cls, records: list[Record]) -> "Dense":
        """Takes it from the records of `measure`."""
        one, many = [record for record in records if record["method"] == "dense"]
        alone, batched = (1e3 * r["milliseconds"] / r["rows"] for r in (one, many))
        return cls(alone, batched, one["bytes_per_row"])

    def milliseconds(self, rows: int, batch: bool = False) -> float:
        """Time of a query on one thread, alone or in a batch."""
        per_row = self.microseconds_per_row_in_batches if batch else self.microseconds_per_row
        return rows * per_row / 1e3


@dataclasses.dataclass(frozen=True)
class IVFPQ:
    """Inverted lists of codes: centroids are compared, then the codes of the lists looked into.

        milliseconds = constant + centroid * nlist + probe * nprobe + code * rows * nprobe / nlist

    `nlist`, and the share of the lists that is looked into, are those that suffice at the size
    measured: the fewest lists after which more add less than 0.01 to the recall. That the same
    share suffices at other sizes is an assumption.
    """

    coefficients: dict[str, float]
    nlist: int
    nprobe: int
    recall: float
    bytes_per_row: float

    @classmethod
    def of(cls, records: list[Record]) -> "IVFPQ":
        """Fits the records of `measure`."""
        own = [record for record in records if record["method"] == "ivfpq"]
        features = np.array([_ivfpq_terms(r["rows"], r["nlist"], r["nprobe"]) for r in own])
        found = fit_relative(features, np.array([record["milliseconds"] for record in own]))
        names = ("constant", "centroid", "probe", "code")
        most = max(record["nlist"] for record in own)
        own = [record for record in own if record["nlist"] == most]
        best = max(record["recall"] for record in own)
        chosen = next(record for record in own if record["recall"] >= best - _ENOUGH)
        return cls(
            dict(zip(names, map(float, found), strict=True)),
            chosen["nlist"],
            chosen["nprobe"],
            chosen["recall"],
            # Centroids of lists and of codes are there once per shard: they are left out.
            chosen["bytes_per_row"]
            - 4 * chosen["dense_dims"] * (chosen["nlist"] + 2 ** chosen["bits"]) / chosen["rows"],
        )

    def milliseconds(self, rows: int) -> float:
        """Time of a query on one thread."""
        features = _ivfpq_terms(rows, self.nlist, self.nprobe)
        return float(np.dot(features, list(self.coefficients.values())))


def _ivfpq_terms(rows: int, nlist: int, nprobe: int) -> list[float]:
    return [1.0, float(nlist), float(nprobe), rows * nprobe / nlist]
