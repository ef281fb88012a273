"""Time per query of several methods, measured in turns.

A method's time by itself says little: on a shared machine it moves by half from one minute to the
next. So the queries are divided into rounds, and in each round every method answers the same ones
before the next round begins. What happens on the machine meets all methods alike, and the ratio of
two methods within a round has a spread that can be told.
"""

import time
import uuid
from typing import NamedTuple

import numpy as np

from sparse_embed import retrieval
from sparse_embed.common.other_load import OtherLoad
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.methods.registry import Data, Method
from sparse_embed.retrieval.megaface import KS

ROUNDS = 10
_WARM_UP = 3  # queries of each turn that are not timed


class Timed(NamedTuple):
    """One method's part in the turns.

    Attributes:
        metrics: see `records`.
        seconds: (rounds, queries) of single queries on one thread.
    """

    metrics: Record
    seconds: np.ndarray


def in_turns(entries: list[tuple[Method, bool]], data: Data, queries: int) -> list[Timed]:
    """Times single queries on one thread, from the query to the ids.

    Args:
        entries: methods, and whether each re-ranks, which its time then includes.
        data: what they search.
        queries: how many are timed for each, at most all probes.
    """
    rounds = min(ROUNDS, queries)
    chosen = np.linspace(0, len(data.labels) - 1, min(queries, len(data.labels))).astype(int)
    parts = np.array_split(chosen, rounds)
    taken: list[list[list[float]]] = [[] for _ in entries]
    for method, _ in progress_bar(entries, desc="building what is timed", unit="method"):
        method.build()
    with OtherLoad() as load:
        for part in progress_bar(parts, desc="timing", unit="round"):
            for (method, reranked), seconds in zip(entries, taken, strict=True):
                seconds.append(_turn(method, data, reranked, part))
    length = min(map(len, parts))  # rounds differ by one query at most
    common = {"turns": uuid.uuid4().hex, "other_load": load.cores}
    found = []
    for rows in taken:
        all_seconds = np.concatenate([np.asarray(row) for row in rows])
        metrics = {
            "milliseconds_per_query": 1e3 * float(np.median(all_seconds)),
            "milliseconds_per_query_p99": 1e3 * float(np.percentile(all_seconds, 99)),
            "timed_queries": len(all_seconds),
            **common,
        }
        found.append(Timed(metrics, np.array([row[:length] for row in rows], np.float32)))
    return found


def _turn(method: Method, data: Data, reranked: bool, chosen: np.ndarray) -> list[float]:
    """Returns the seconds of each of the chosen probes."""
    index, _ = method.build()  # built before; sets the method's own attributes again
    two_stage = retrieval.TwoStage(index, data.reranker)
    queries = [method.probes[i : i + 1] for i in chosen]
    dense = data.dense_probes[chosen]

    def answer(place: int) -> None:
        if reranked:
            two_stage.search(
                queries[place],
                dense[place : place + 1],
                max(KS),
                method.shortlist,
                method.threshold,
            )
        else:
            index.search(queries[place], method.shortlist or max(KS), method.threshold, 1)

    for place in range(min(_WARM_UP, len(chosen))):
        answer(len(chosen) - 1 - place)
    seconds = []
    for place in range(len(chosen)):
        start = time.perf_counter()
        answer(place)
        seconds.append(time.perf_counter() - start)
    return seconds
