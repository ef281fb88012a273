"""What search among more rows than one machine holds takes: shards, memory, latency, cores.

A query goes to all shards at once. Its latency is the time of the slowest, in its queue and at
work, and what the caller adds:

    round trip + call * shards + bytes of the results / bandwidth + merge

Shards are replicated until no worker is busy for more than `MOST_BUSY` of the time.
"""

import dataclasses
import math

import numpy as np
from cost_formula import Fit, fit_relative
from cost_rivals import IVFPQ, Dense
from shard_queue import Spread, latencies

from sparse_embed.common.checks import check_number
from sparse_embed.experiments.core.records import Record

MOST_BUSY = 0.6
RESULT_BYTES = 12  # a float32 score and an int64 id
SIMULATED = 4000  # queries
_WARM = 500  # of them, before queues are as long as they become


@dataclasses.dataclass(frozen=True)
class MergeModel:
    """Milliseconds to merge the results of shards: `constant + result * shards * k`."""

    constant: float
    result: float

    @classmethod
    def fit(cls, records: list[Record]) -> "MergeModel":
        """Fits records of shards, k and milliseconds."""
        features = np.array([[1.0, record["shards"] * record["k"]] for record in records])
        taken = np.array([record["milliseconds"] for record in records])
        return cls(*map(float, fit_relative(features, taken)))

    def milliseconds(self, shards: int, k: int) -> float:
        """Time to merge for one query."""
        return self.constant + self.result * shards * k


@dataclasses.dataclass(frozen=True)
class Caller:
    """What the machine that asks the shards adds."""

    round_trip_ms: float
    call_ms: float
    gigabits: float
    merge: MergeModel

    def milliseconds(self, shards: int, k: int) -> float:
        """Time that a query takes beside the slowest shard; one shard is no other machine."""
        if shards == 1:
            return 0.0
        transfer = 8e3 * RESULT_BYTES * shards * k / (self.gigabits * 1e9)
        merging = self.merge.milliseconds(shards, k)
        return self.round_trip_ms + self.call_ms * shards + transfer + merging


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is searched for in what."""

    flops_per_row: float
    nonzeros: float
    row_nonzeros: float
    k: int

    @classmethod
    def of(cls, record: Record) -> "Setting":
        """Takes it from what was measured."""
        return cls(**{field.name: record[field.name] for field in dataclasses.fields(cls)})


@dataclasses.dataclass(frozen=True)
class Site:
    """The machines.

    Attributes:
        replica_cores: cores of each replica of a shard.
        caller: what is added to the slowest shard.
    """

    replica_cores: int
    caller: Caller


def plan(
    fit: Fit,
    setting: Setting,
    rows: int,
    shard_rows: int,
    rate: float,
    spread: Spread,
    site: Site,
    seed: int = 0,
) -> Record:
    """What one setting takes: shards, replicas, cores, memory and the latency of a query.

    Args:
        fit: the model of one shard.
        setting: the rows' and queries' sparsity, and k.
        rows: in all shards.
        shard_rows: of each shard.
        rate: queries per second.
        spread: how times vary around the median.
        site: the machines.
        seed: of the simulation.
    """
    check_number("rows", rows, integer=True, minimum=1)
    check_number("shard_rows", shard_rows, integer=True, minimum=1)
    check_number("rate", rate, above=0)
    rng = np.random.default_rng(seed)
    shards = math.ceil(rows / shard_rows)
    kind = "far" if shards > 1 else "near"
    asked = (setting.flops_per_row, setting.k)
    median = fit.times[kind].milliseconds(rows / shards, *asked) / 1e3
    service = median * spread.draw(SIMULATED, shards, rng)
    work = float(service.mean())  # seconds of a core, per query and shard
    replicas = max(1, math.ceil(rate * work / (MOST_BUSY * site.replica_cores)))
    taken = latencies(service, rate / replicas, site.replica_cores, rng)[_WARM:]
    added = site.caller.milliseconds(shards, setting.k)
    idle = 1e3 * service.max(axis=1) + added
    queued = 1e3 * taken + added
    return {
        "rows": rows,
        "shards": shards,
        "k": setting.k,
        "rate": rate,
        "replicas": replicas,
        "cores": shards * replicas * site.replica_cores,
        "gigabytes": replicas * rows * fit.size.bytes(setting.row_nonzeros) / 1e9,
        "gigabytes_per_shard": rows / shards * fit.size.bytes(setting.row_nonzeros) / 1e9,
        "shard_p50": 1e3 * median,
        "slowest_p50": float(1e3 * np.median(service.max(axis=1))),
        "caller": added,
        "idle_p50": float(np.median(idle)),
        "idle_p99": float(np.percentile(idle, 99)),
        "p50": float(np.median(queued)),
        "p99": float(np.percentile(queued, 99)),
        "core_seconds_per_query": shards * work,
    }


def compare(
    fit: Fit,
    setting: Setting,
    rows: int,
    shard_rows: int,
    spread: Spread,
    dense: Dense,
    ivfpq: IVFPQ,
) -> list[Record]:
    """Core seconds per query and gigabytes of each method, in shards of equal rows, cores idle."""
    shards = math.ceil(rows / shard_rows)
    each = rows // shards
    asked = (setting.flops_per_row, setting.k)
    ours = fit.times["far" if shards > 1 else "near"].milliseconds(each, *asked)
    mean = float(np.mean(spread.own))  # of the median
    found = [
        ("SparseIndex", mean * ours, fit.size.bytes(setting.row_nonzeros), 1.0),
        ("dense, one query", dense.milliseconds(each), dense.bytes_per_row, 1.0),
        ("dense, batches", dense.milliseconds(each, batch=True), dense.bytes_per_row, 1.0),
        ("IVF-PQ", ivfpq.milliseconds(each), ivfpq.bytes_per_row, ivfpq.recall),
    ]
    return [
        {
            "rows": rows,
            "shards": shards,
            "k": setting.k,
            "method": method,
            "shard_milliseconds": taken,
            "core_seconds_per_query": shards * taken / 1e3,
            "gigabytes": rows * size / 1e9,
            "recall": share,
        }
        for method, taken, size, share in found
    ]
