"""Identification among distractors: recall and time per query of one method, as records."""

import functools
import pathlib
import time
from typing import Any

import numpy as np

from sparse_embed import retrieval
from sparse_embed.experiments.evaluation import records
from sparse_embed.experiments.evaluation.methods import Data, Method
from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.reporting.text_table import text_table
from sparse_embed.retrieval.megaface import KS, identification_ranks, recall_of_ranks

_WARM_UP = 10  # queries
_TIME_BUDGET = 30.0  # seconds per method and setting, but at least 20 queries


def query_seconds(
    method: Method, data: Data, index: retrieval.Search, reranked: bool, count: int
) -> np.ndarray:
    """Seconds of single queries on one thread, from the query to the ids, re-ranking included."""
    chosen = np.linspace(0, len(data.labels) - 1, min(count, len(data.labels))).astype(int)
    queries = [method.probes[i : i + 1] for i in chosen]
    dense = data.dense_probes[chosen]
    two_stage = retrieval.TwoStage(index, data.reranker)

    def answer(place: int) -> None:
        query = queries[place]
        if reranked:
            two_stage.search(
                query, dense[place : place + 1], max(KS), method.shortlist, method.threshold
            )
        else:
            index.search(query, method.shortlist or max(KS), method.threshold, 1)

    for place in range(min(_WARM_UP, len(chosen))):
        answer(place)
    seconds: list[float] = []
    for place in range(len(chosen)):
        if len(seconds) >= 20 and sum(seconds) > _TIME_BUDGET:
            break
        start = time.perf_counter()
        answer(place)
        seconds.append(time.perf_counter() - start)
    return np.array(seconds)


def evaluate(
    method: Method, data: Data, folder: pathlib.Path, data_name: str, timed_queries: int
) -> None:
    """Updates the records of one method and setting: without and with re-ranking.

    Args:
        method: the method.
        data: the rows to search.
        folder: folder of the records.
        data_name: name of the data in them.
        timed_queries: how many queries to time.
    """

    @functools.cache
    def identify() -> Any:
        index, _ = method.build()
        print(
            f"{method.name} {method.setting}: searching for {len(data.labels)} probes", flush=True
        )
        needs_dense = True in method.reranked
        return identification_ranks(
            index,
            method.probes,
            data.labels,
            shortlist=method.shortlist,
            threshold=method.threshold,
            reranker=data.reranker if needs_dense else None,
            dense_probes=data.dense_probes if needs_dense else None,
            num_threads=data.num_threads,
            progress=True,
        )

    def make(reranked: bool) -> tuple[Record, dict[str, np.ndarray]]:
        index, build_seconds = method.build()
        pairs = identify()
        metrics: Record = {
            f"{prefix}recall_at_{k}": recall
            for prefix, protocol in (("", "official"), ("authors_", "authors"))
            for k, recall in recall_of_ranks(pairs, KS, protocol, reranked).items()
        }
        seconds = query_seconds(method, data, index, reranked, timed_queries)
        metrics |= {
            "milliseconds_per_query": 1e3 * float(np.median(seconds)),
            "milliseconds_per_query_p99": 1e3 * float(np.percentile(seconds, 99)),
            "timed_queries": len(seconds),
            "build_seconds": build_seconds,
            "index_bytes": int(index.nbytes),
            "rerank_bytes": data.reranker.nbytes if reranked else 0,
            **method.metrics(index),
        }
        ranks = pairs.reranked if reranked else pairs.ranks
        arrays = {"probes": pairs.probes, "mates": pairs.mates, "ranks": ranks, "seconds": seconds}
        return metrics, arrays

    for reranked in method.reranked:
        key = {
            "experiment": "megaface",
            "data": data_name,
            "method": method.name,
            "setting": method.setting,
            "reranked": reranked,
            "probes": len(data.labels),
            "distractors": data.distractors,
            "lists": data.dense.provenance.get("megaface"),
            "flags": {
                "k": method.shortlist,
                "threshold": method.threshold,
                "timed_queries": timed_queries,
                "train": method.train or data.dense.provenance.get("train"),
            },
        }
        files = [data.path] if method.path is None else [data.path, method.path]
        more = "reranked" if reranked else ""
        records.update(folder, key, files, functools.partial(make, reranked), more)


def table(found: list[Record]) -> str:
    """Returns the records as a text table, fastest first, beside exhaustive search."""
    exhaustive = [r["milliseconds_per_query"] for r in found if r["method"] == "dense"]
    head = ["method", "setting", "re-ranked", "recall@1", "@10", "ms/query", "faster", "F", "R"]
    rows = []
    for record in sorted(found, key=lambda record: record["milliseconds_per_query"]):
        taken = record["milliseconds_per_query"]
        ratio = record.get("suboptimality_ratio")
        rows.append(
            [
                record["method"],
                " ".join(f"{name}={value}" for name, value in record["setting"].items()),
                "yes" if record["reranked"] else "no",
                f"{record['recall_at_1']:.4f}",
                f"{record['recall_at_10']:.4f}",
                f"{taken:.3f}",
                f"{max(exhaustive) / taken:.1f}x" if exhaustive else "",
                f"{record['flops_per_row']:.2f}" if "flops_per_row" in record else "",
                f"{ratio:.3f}" if ratio is not None else "",
            ]
        )
    return text_table(head, rows)
