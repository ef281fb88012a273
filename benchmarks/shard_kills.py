"""Processes of shards killed at random moments of a steady load; every answer is compared."""

import collections
import dataclasses
import os
import random
import signal
import socket
import threading
import time

import numpy as np
import scipy.sparse
from sharded_search import Answer, same

from sparse_embed.common.failures import UsageError
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.core.records import Record
from sparse_embed.retrieval import ShardedIndex, ShardUnavailableError, SparseIndex

_CLIENTS = 2
_POOL = 32  # batches whose right answers are known
_SLACK = 0.5  # seconds after the deadline that an answer still counts as in time
_BETWEEN = (0.5, 3.0)  # seconds from a recovery to the next kill
_LOST = 120.0  # seconds after which a process counts as lost


@dataclasses.dataclass
class Load:
    """Searches by several threads, one after the other in each, until `stop` is set."""

    index: ShardedIndex
    k: int
    deadline: float
    pool: list[tuple[scipy.sparse.csr_array, Answer]]
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    begun: int = 0
    outcomes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    seconds: list[float] = dataclasses.field(default_factory=list)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def run(self, seed: int) -> None:
        """Searches batches of the pool at random."""
        rng = random.Random(seed)
        while not self.stop.is_set():
            batch, wanted = rng.choice(self.pool)
            with self.lock:
                self.begun += 1
            begin = time.monotonic()
            try:
                right = same(self.index.search(batch, self.k, deadline=self.deadline), wanted)
                outcome = "right" if right else "wrong"
            except ShardUnavailableError:
                outcome = "named error"
            except Exception as error:  # counted, and shown in the record
                outcome = f"other error: {type(error).__name__}"
            taken = time.monotonic() - begin
            with self.lock:
                self.outcomes[outcome] += 1
                self.outcomes["late"] += taken > self.deadline + _SLACK
                self.seconds.append(taken)


def measure(
    index: ShardedIndex,
    one: SparseIndex,
    queries: list[scipy.sparse.csr_array],
    k: int,
    kills: int,
    deadline: float,
    seed: int = 0,
) -> list[Record]:
    """Kills processes of random shards with SIGKILL, and returns what became of all searches.

    A process has recovered when its shard answers from another one. The record has the number of
    searches that were `begun`, and of those that ended `right`, `wrong`, with the `named_error`,
    with `other_errors` or `late`; `lost` ones did not end.
    """
    pool = [(batch, one.search(batch, k)) for batch in queries[:_POOL]]
    load = Load(index, k, deadline, pool)
    threads = [threading.Thread(target=load.run, args=(place,)) for place in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    rng = random.Random(seed)
    recoveries = []
    try:
        for _ in progress_bar(range(kills), unit="kills"):
            time.sleep(rng.uniform(*_BETWEEN))
            recoveries.append(_kill(index, rng.choice(index.shards)))
        time.sleep(_BETWEEN[1])
    finally:
        load.stop.set()
        for thread in threads:
            thread.join(2 * deadline)
    outcomes = load.outcomes
    ended = {name: outcomes[name] for name in ("right", "wrong", "named error")}
    others = {name: count for name, count in outcomes.items() if name.startswith("other")}
    record = {
        "stage": "kills",
        "kills": kills,
        "begun": load.begun,
        **{name.replace(" ", "_"): count for name, count in ended.items()},
        "other_errors": others,
        "late": outcomes["late"],
        "lost": load.begun - sum(ended.values()) - sum(others.values()),
        "deadline": deadline,
        "recovery_seconds": recoveries,
        "recovery_median": float(np.median(recoveries)),
        "recovery_max": max(recoveries),
        "batch_median": float(np.median(load.seconds)),
        "batch_max": max(load.seconds),
    }
    print(
        f"{kills} kills: {record['begun']} batches, {record['right']} right, {record['wrong']} "
        f"wrong, {record['named_error']} with the named error, {sum(others.values())} with others, "
        f"{record['late']} late, {record['lost']} lost; back after "
        f"{record['recovery_median']:.2f} s (median), {record['recovery_max']:.2f} s (longest); "
        f"longest search {record['batch_max']:.2f} s",
        flush=True,
    )
    return [record]


def process_of(index: ShardedIndex, name: str, timeout: float = _LOST) -> int:
    """Returns the process that answers for a shard."""
    for health in index.health(timeout):
        if health.name == name and health.pid is not None:
            if health.host != socket.gethostname():
                raise UsageError(
                    f"--kills: {name} is searched on {health.host}: expected --kills=0, or shards "
                    "on this machine"
                )
            return health.pid
    raise RuntimeError(f"{name} does not answer within {timeout:g} s")


def _kill(index: ShardedIndex, name: str) -> float:
    """Kills the process of a shard; returns the seconds until another one answers for it."""
    pid = process_of(index, name)
    os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    while process_of(index, name) == pid:
        time.sleep(0.01)
    return time.monotonic() - begin
