"""Identification among distractors: recall and time per query of one method, as records."""

import dataclasses
import functools
import pathlib

import numpy as np

from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.methods import timing
from sparse_embed.experiments.methods.registry import Data, Method
from sparse_embed.retrieval.megaface import (
    KS,
    PairRanks,
    identification_ranks,
    recall_of_ranks,
)


@dataclasses.dataclass(frozen=True)
class Task:
    """What all records of a call share.

    Attributes:
        data: the rows to search.
        folder: folder of the records.
        data_name: name of the data in them.
        timed_queries: how many queries to time; 0 for none.
    """

    data: Data
    folder: pathlib.Path
    data_name: str
    timed_queries: int


def evaluate(methods: list[Method], task: Task) -> None:
    """Updates the records of some methods, without and with re-ranking.

    First recall, method by method. Then, unless nothing has changed since they were timed, all are
    timed in turns.
    """
    entries = [(method, reranked) for method in methods for reranked in method.reranked]
    names = [name for method in methods for name in identify(method, task)]
    if not task.timed_queries or _were_timed(names, task):
        return
    found = timing.in_turns(entries, task.data, task.timed_queries)
    for name, timed in zip(names, found, strict=True):
        records.amend(task.folder, name, timed.metrics, {"seconds": timed.seconds})


def _were_timed(names: list[str], task: Task) -> bool:
    """Whether the last timing was of all these records together."""
    found = [record for record in records.load(task.folder) if record["name"] in set(names)]
    turns = {(record.get("turns"), record.get("timed_queries")) for record in found}
    count = min(task.timed_queries, len(task.data.labels))
    return len(turns) == 1 and turns.pop()[1] == count


def identify(method: Method, task: Task) -> list[str]:
    """Updates the records of one method, without and with re-ranking; returns their names."""
    data = task.data

    @functools.cache
    def ranks() -> PairRanks:
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
        metrics: Record = {
            f"{prefix}recall_at_{k}": recall
            for prefix, protocol in (("", "official"), ("authors_", "authors"))
            for k, recall in recall_of_ranks(ranks(), KS, protocol, reranked).items()
        }
        metrics |= {
            "build_seconds": build_seconds,
            "index_bytes": int(index.nbytes),
            "rerank_bytes": data.reranker.nbytes if reranked else 0,
            **method.metrics(index),
        }
        return metrics, outcomes(ranks(), data.labels, reranked)

    names = []
    for reranked in method.reranked:
        key = {
            "experiment": "megaface",
            "data": task.data_name,
            "method": method.name,
            "setting": method.setting,
            "seed": data.dense.seed,
            "reranked": reranked,
            "probes": len(data.labels),
            "distractors": data.distractors,
            "lists": data.dense.provenance.get("megaface"),
            "flags": {
                "k": method.shortlist,
                "threshold": method.threshold,
                "train": method.train or data.dense.provenance.get("train"),
            },
        }
        files = [data.path] if method.path is None else [data.path, method.path]
        more = "reranked" if reranked else ""
        records.update(task.folder, key, files, functools.partial(make, reranked), more)
        names.append(records.record_name(key, more))
    return names


def outcomes(pairs: PairRanks, labels: np.ndarray, reranked: bool) -> dict[str, np.ndarray]:
    """Returns the raw results of a record: the outcome of each probe, and the rank of each pair.

    Args:
        pairs: the ranks.
        labels: (probes,) identity of each probe.
        reranked: whether to take the ranks after re-ranking.

    Returns:
        "labels"; "mates" and "hits" (probes,), how many mates each probe has and how many of them
        no distractor precedes; "ranks" (pairs,), by probe, then by mate.
    """
    ranks = pairs.reranked if reranked else pairs.ranks
    assert ranks is not None
    found = np.bincount(pairs.probes, minlength=len(labels))
    hits = np.bincount(pairs.probes[ranks == 0], minlength=len(labels))
    return {
        "labels": labels.astype(np.int32),
        "mates": found.astype(np.uint16),
        "hits": hits.astype(np.uint16),
        "ranks": ranks,
    }


def table(found: list[Record]) -> str:
    """Returns the records as a text table, fastest first, beside exhaustive search.

    Records that were not timed come last, the best first.
    """
    exhaustive = [r.get("milliseconds_per_query", 0.0) for r in found if r["method"] == "dense"]
    head = ["method", "setting", "seed", "re-ranked", "recall@1", "@10", "ms/query", "faster"]
    head += ["F", "R"]
    rows = []

    def order(record: Record) -> tuple[float, float]:
        return record.get("milliseconds_per_query", np.inf), -record["recall_at_1"]

    for record in sorted(found, key=order):
        taken = record.get("milliseconds_per_query")
        ratio = record.get("suboptimality_ratio")
        rows.append(
            [
                record["method"],
                " ".join(f"{name}={value}" for name, value in record["setting"].items()),
                str(record.get("seed", "")),
                "yes" if record["reranked"] else "no",
                f"{record['recall_at_1']:.4f}",
                f"{record['recall_at_10']:.4f}",
                f"{taken:.3f}" if taken else "",
                f"{max(exhaustive) / taken:.1f}x" if taken and any(exhaustive) else "",
                f"{record['flops_per_row']:.2f}" if "flops_per_row" in record else "",
                f"{ratio:.3f}" if ratio is not None else "",
            ]
        )
    return text_table(head, rows)
