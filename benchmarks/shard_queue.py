"""How long a query takes that many shards answer: the slowest counts, and queries wait in line."""

import numpy as np

from sparse_embed.common.checks import check_number


class Spread:
    """How times per query vary: between queries, and between shards for the same query.

    A query that is slow on one shard is slow on all of them, so times of shards are no independent
    draws. The time of query q on shard s is taken apart into the query's own, the mean over the
    shards, and a factor of the shard's. Both are drawn from what was measured.

    Args:
        times: (queries, shards), positive: the same queries on shards of equal size.
    """

    def __init__(self, times: np.ndarray):
        times = np.asarray(times, float)
        if times.ndim != 2 or min(times.shape) < 2:
            raise ValueError(f"times of shape {times.shape}: expected (queries >= 2, shards >= 2)")
        if not (np.isfinite(times) & (times > 0)).all():
            raise ValueError("times: expected positive numbers")
        own = times.mean(axis=1)
        # The mean takes part in each shard's own deviation: without this, factors vary too little.
        shards = times.shape[1]
        factors = 1 + (times / own[:, None] - 1) * np.sqrt(shards / (shards - 1))
        self.own = own / np.median(times)
        self.factors = np.maximum(factors.ravel(), 1e-3)

    def draw(self, queries: int, shards: int, rng: np.random.Generator) -> np.ndarray:
        """Returns times (queries, shards) in units of the median time of one query on one shard."""
        own = rng.choice(self.own, queries)
        return own[:, None] * rng.choice(self.factors, (queries, shards))


def latencies(
    service: np.ndarray, rate: float, workers: int, rng: np.random.Generator
) -> np.ndarray:
    """Seconds from the arrival of each query to the end of its slowest shard.

    Queries arrive at random (Poisson) and go to all shards at once. Each shard answers them in
    their order, `workers` at a time.

    Args:
        service: (queries, shards) seconds that each shard works on each query.
        rate: queries per second.
        workers: of each shard.
        rng: draws the arrivals.

    Returns:
        (queries,) seconds.

    Raises:
        ValueError: the shards cannot keep up with the rate.
    """
    check_number("rate", rate, above=0)
    check_number("workers", workers, integer=True, minimum=1)
    busy = rate * float(service.mean(axis=0).max()) / workers
    if busy >= 1:
        raise ValueError(
            f"rate={rate:g} keeps {workers} workers busy {busy:.0%} of the time: expected < 100%"
        )
    queries, shards = service.shape
    arrivals = np.cumsum(rng.exponential(1 / rate, queries))
    free = np.zeros((shards, workers))  # when each worker is done with what it has
    every = np.arange(shards)
    found = np.empty(queries)
    for i, now in enumerate(arrivals):
        chosen = free.argmin(axis=1)
        ends = np.maximum(free[every, chosen], now) + service[i]
        free[every, chosen] = ends
        found[i] = ends.max() - now
    return found
