"""The cost model of search: bytes per row, and time per query of an index, fitted on measurements.

For rows of one sparsity, the time of a query on one thread, in milliseconds, for n million rows, a
query of z non-zeros and k results is a sum of terms, none negative:

    constant      c0                      the call, the query's own tables
    rows          c1 n                    bounds of cells are read, and postings accumulated
    beyond cache  c2 max(0, n - C / z)    the same, where they do not fit into the last cache
    candidates    c3 sqrt(n k)            rows whose bound reaches the k-th best score are scored
    results       c4 k                    and so are the results themselves

The number of candidates lies between k, for perfect bounds, and n, for useless ones: the square
root stands for the geometric mean. C, in millions of non-zeros, is the same for all sparsities.
Between two sparsities that were measured, the logarithm of the time is linear in that of F, the
multiply-adds per row (what Algorithm 1 would do): `SparseIndex` chooses the sizes of cells and the
way to search by the sparsity, and no one formula follows that. Relative errors are what is made
small, so that short times count as much as long ones.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.optimize

from sparse_embed.common.checks import check_number
from sparse_embed.experiments.core.records import Record

TERMS = ("constant", "rows", "beyond cache", "candidates", "results")
FIT_ROWS = (1_000_000, 3_000_000, 10_000_000)
_CACHED = np.arange(0.0, 97.0, 4.0)  # C is one of these
_REACH = 1.01  # how far F may be from those that were measured: draws of queries differ


def terms(rows: float, nonzeros: float, k: float, cached: float) -> np.ndarray:
    """What the coefficients are multiplied by, see above; one number per term."""
    n = rows / 1e6
    beyond = max(0.0, n - cached / nonzeros)
    return np.array([1.0, n, beyond, np.sqrt(n * k), k])


def fit_relative(features: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Non-negative coefficients for the least squares of relative errors.

    Args:
        features: (n, terms).
        values: (n,), positive.

    Raises:
        ValueError: there are fewer values than terms, or one is not positive.
    """
    features, values = np.asarray(features, float), np.asarray(values, float)
    if features.ndim != 2 or values.shape != features.shape[:1]:
        raise ValueError(
            f"features of shape {features.shape}, values of shape {values.shape}: "
            "expected (n, terms) and (n,)"
        )
    if len(values) < features.shape[1]:
        raise ValueError(
            f"{len(values)} measurements: expected at least {features.shape[1]}, one per term"
        )
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("values: expected positive numbers")
    scaled = features / values[:, None]
    sizes = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)  # terms of like size
    found: np.ndarray = scipy.optimize.nnls(scaled / sizes, np.ones(len(values)))[0] / sizes
    return found


@dataclasses.dataclass(frozen=True)
class Sparsity:
    """A sparsity that was measured, with the coefficients of `TERMS` for it."""

    flops_per_row: float
    nonzeros: float
    coefficients: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class TimeModel:
    """Milliseconds per query.

    Attributes:
        cached: C.
        measured: by rising F.
    """

    cached: float
    measured: tuple[Sparsity, ...]

    @classmethod
    def fit(cls, records: Sequence[Record], key: str = "p50") -> "TimeModel":
        """Fits the metric `key` of records that have rows, nnz, flops_per_row, nonzeros and k."""
        if not records:
            raise ValueError("0 measurements: expected those of an index")
        by_nnz = [
            [record for record in records if record["nnz"] == nnz]
            for nnz in sorted({record["nnz"] for record in records})
        ]
        tried = [
            cls(cached, tuple(_fitted(own, cached, key) for own in by_nnz)) for cached in _CACHED
        ]
        return min(tried, key=lambda model: model._error(records, key))

    def _error(self, records: Sequence[Record], key: str) -> float:
        """Returns the sum of squared relative errors."""
        asked = [(record["rows"], record["flops_per_row"], record["k"]) for record in records]
        found = [self.milliseconds(*one) for one in asked]
        squares: float = sum((f / r[key] - 1) ** 2 for f, r in zip(found, records, strict=True))
        return squares

    def milliseconds(self, rows: float, flops_per_row: float, k: float) -> float:
        """Time of a query on one thread.

        Raises:
            ValueError: `flops_per_row` is not between those that were measured.
        """
        check_number("rows", rows, minimum=1)
        check_number("k", k, minimum=1)
        known = [one.flops_per_row for one in self.measured]
        lowest, highest = known[0] / _REACH, known[-1] * _REACH
        check_number("flops_per_row", flops_per_row, minimum=lowest, maximum=highest)
        taken = [
            terms(rows, one.nonzeros, k, self.cached) @ one.coefficients for one in self.measured
        ]
        return float(np.exp(np.interp(np.log(flops_per_row), np.log(known), np.log(taken))))


def _fitted(records: Sequence[Record], cached: float, key: str) -> Sparsity:
    """Fits the coefficients of one sparsity."""
    features = [terms(r["rows"], r["nonzeros"], r["k"], cached) for r in records]
    found = fit_relative(np.array(features), np.array([record[key] for record in records]))
    flops, nonzeros = (
        float(np.mean([record[name] for record in records]))
        for name in ("flops_per_row", "nonzeros")
    )
    return Sparsity(flops, nonzeros, tuple(map(float, found)))


@dataclasses.dataclass(frozen=True)
class BytesModel:
    """Bytes per row: `per_row + per_nonzero * nonzeros of a row`."""

    per_row: float
    per_nonzero: float

    @classmethod
    def fit(cls, records: Sequence[Record]) -> "BytesModel":
        """Fits `bytes_per_row` of records that have row_nonzeros."""
        features = np.array([[1.0, record["row_nonzeros"]] for record in records]).reshape(-1, 2)
        found = fit_relative(features, np.array([record["bytes_per_row"] for record in records]))
        return cls(float(found[0]), float(found[1]))

    def bytes(self, row_nonzeros: float) -> float:
        """Bytes of a row with so many non-zeros."""
        check_number("row_nonzeros", row_nonzeros, minimum=0)
        return self.per_row + self.per_nonzero * row_nonzeros


@dataclasses.dataclass(frozen=True)
class Fit:
    """A time model for each kind of query, and the bytes."""

    times: dict[str, TimeModel]
    size: BytesModel

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Fit":
        """Fits everything that a cost needs."""
        kinds = sorted({record["kind"] for record in records})
        return cls(
            {kind: TimeModel.fit([r for r in records if r["kind"] == kind]) for kind in kinds},
            BytesModel.fit(records),
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Fit":
        """Makes it of what `dataclasses.asdict` gave."""
        times = {
            kind: TimeModel(
                model["cached"],
                tuple(
                    Sparsity(**{**one, "coefficients": tuple(one["coefficients"])})
                    for one in model["measured"]
                ),
            )
            for kind, model in content["times"].items()
        }
        return cls(times, BytesModel(**content["size"]))

    def predict(self, record: Record, rows: int) -> Record:
        """What a record's setting should take with other rows of the same distribution."""
        keys = ("nnz", "kind", "k", "flops_per_row", "nonzeros", "row_nonzeros")
        setting = {key: record[key] for key in keys}
        asked = (setting["flops_per_row"], setting["k"])
        return {
            "rows": rows,
            **setting,
            "p50": self.times[setting["kind"]].milliseconds(rows, *asked),
            "bytes_per_row": self.size.bytes(setting["row_nonzeros"]),
        }


def errors(predicted: Sequence[Record], measured: Sequence[Record]) -> list[Record]:
    """Joins predictions with what was measured: relative errors of time and bytes.

    Raises:
        ValueError: something predicted was not measured.
    """
    found: list[Record] = []
    by_setting = {_setting(record): record for record in measured}
    for record in predicted:
        if _setting(record) not in by_setting:
            raise ValueError("{} rows, nnz={}, {}, k={}: not measured".format(*_setting(record)))
        seen = by_setting[_setting(record)]
        found.append(
            {
                **{key: record[key] for key in ("rows", "nnz", "kind", "k")},
                **{f"predicted_{key}": record[key] for key in ("p50", "bytes_per_row")},
                **{f"measured_{key}": seen[key] for key in ("p50", "bytes_per_row")},
                "time_error": record["p50"] / seen["p50"] - 1,
                "bytes_error": record["bytes_per_row"] / seen["bytes_per_row"] - 1,
            }
        )
    return found


def _setting(record: Record) -> tuple[int, int, str, int]:
    return record["rows"], record["nnz"], record["kind"], record["k"]
