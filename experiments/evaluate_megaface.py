r"""Identification among distractors: recall and time per query of every method, one record each.

    python -m sparse_embed.experiments.evaluate_megaface --dense=runs/dense512/identification.npy \
        --sparse=runs/flops_30/identification.npz,runs/l1_0.6/identification.npz

Each file holds the same images in the same order: first the probes, which are the mates of each
other, labelled with their identities, then the distractors, labelled -1. Recall is that of
MegaFace, and of the authors' variant of it (see `retrieval.megaface`). --dense is what everything
is re-ranked with, as in the paper, and what PCA, LSH, IVF-PQ and HNSW compress. The shortlist of
the sparse embeddings has scores of --threshold and more, at most --k; that of the others the best
--k.

Recall is over all probes. Times are the median over some of them, one at a time on one thread,
after a warm-up; nothing else should run. Records whose inputs and settings are unchanged are kept.
A table of all of them is printed at the end: F is multiply-adds per row, R the sub-optimality
ratio.
"""

import functools
import os
import pathlib
import time
from typing import Any

import numpy as np
from absl import flags

from sparse_embed import retrieval
from sparse_embed.experiments import records
from sparse_embed.experiments.identification_methods import METHODS, Data, Method, load
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DATA_NAME, DISTRACTORS, ONLY, TIMED_QUERIES
from sparse_embed.flags.output import RECORDS
from sparse_embed.flags.retrieval import THRESHOLD, K
from sparse_embed.retrieval.megaface import KS, identification_ranks, recall_of_ranks
from sparse_embed.retrieval.metrics import check_unit_norm
from sparse_embed.retrieval.rerank import Index

_DENSE = flags.DEFINE_string(
    "dense", None, "Dense embeddings (.npy) that everything re-ranks with."
)
_OTHERS = {
    "narrow_dense": flags.DEFINE_list(
        "narrow_dense", [], "More dense embeddings (.npy), such as 128-d ones, not re-ranked."
    ),
    "sparse": flags.DEFINE_list(
        "sparse", [], "Sparse embeddings (.npz) of one or several encoders."
    ),
    "sdh": flags.DEFINE_list("sdh", [], "Hash codes (.npz) of one or several encoders."),
}
_BUILD_THREADS = flags.DEFINE_integer(
    "build_threads",
    os.cpu_count() or 1,
    "Threads to build and to find the recall with; queries are timed on one in any case.",
    lower_bound=1,
)

_WARM_UP = 10  # queries
_TIME_BUDGET = 30.0  # seconds per method and setting, but at least 20 queries


def query_seconds(
    method: Method, data: Data, index: Index, reranked: bool, count: int
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
            index.search(query, method.shortlist, method.threshold, 1)

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


def evaluate(method: Method, data: Data, folder: pathlib.Path) -> None:
    """Updates the records of one method and setting: without and with re-ranking."""

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

    def make(reranked: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        index, build_seconds = method.build()
        pairs = identify()
        figures: dict[str, Any] = {
            f"{prefix}recall_at_{k}": recall
            for prefix, protocol in (("", "official"), ("authors_", "authors"))
            for k, recall in recall_of_ranks(pairs, KS, protocol, reranked).items()
        }
        seconds = query_seconds(method, data, index, reranked, TIMED_QUERIES.value)
        figures |= {
            "milliseconds_per_query": 1e3 * float(np.median(seconds)),
            "milliseconds_per_query_p99": 1e3 * float(np.percentile(seconds, 99)),
            "timed_queries": len(seconds),
            "build_seconds": build_seconds,
            "index_bytes": int(index.nbytes),  # type: ignore[attr-defined]
            "rerank_bytes": data.reranker.nbytes if reranked else 0,
            **method.figures(index),
        }
        ranks = pairs.reranked if reranked else pairs.ranks
        arrays = {"probes": pairs.probes, "mates": pairs.mates, "ranks": ranks, "seconds": seconds}
        return figures, arrays

    for reranked in method.reranked:
        key = {
            "experiment": "megaface",
            "data": DATA_NAME.value,
            "method": method.name,
            "setting": method.setting,
            "reranked": reranked,
            "probes": len(data.labels),
            "distractors": data.rows - len(data.labels),
            "lists": data.note.get("megaface"),
            "flags": {
                "k": method.shortlist,
                "threshold": method.threshold,
                "timed_queries": TIMED_QUERIES.value,
                "train": method.train or data.note.get("train"),
            },
        }
        name = records.record_name(
            "megaface",
            DATA_NAME.value,
            data.rows - len(data.labels),
            method.name,
            *(f"{name}={value}" for name, value in method.setting.items()),
            "reranked" if reranked else "",
        )
        files = [data.path] if method.path in (None, data.path) else [data.path, method.path]
        records.update(folder, name, key, files, functools.partial(make, reranked))


def table(found: list[records.Record]) -> str:
    """Returns the records as an aligned text table, fastest first, beside exhaustive search."""
    exhaustive = [r["milliseconds_per_query"] for r in found if r["method"] == "dense"]
    lines = [("method", "setting", "re-ranked", "recall@1", "@10", "ms/query", "faster", "F", "R")]
    for record in sorted(found, key=lambda record: record["milliseconds_per_query"]):
        time_taken = record["milliseconds_per_query"]
        lines.append(
            (
                record["method"],
                " ".join(f"{name}={value}" for name, value in record["setting"].items()),
                "yes" if record["reranked"] else "no",
                f"{record['recall_at_1']:.4f}",
                f"{record['recall_at_10']:.4f}",
                f"{time_taken:.3f}",
                f"{max(exhaustive) / time_taken:.1f}x" if exhaustive else "",
                f"{record['flops_per_row']:.2f}" if "flops_per_row" in record else "",
                f"{record['suboptimality_ratio']:.3f}" if "suboptimality_ratio" in record else "",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main() -> None:
    """Reads the flags and evaluates every method that they name."""
    folder = app.writable_folder("records", RECORDS.value)
    for name in ONLY.value:
        if name not in METHODS:
            raise app.UsageError(f"--only={name}: expected some of {', '.join(METHODS)}")
    path = app.existing_path("dense", _DENSE.value)
    dense = load("dense", path, DISTRACTORS.value)
    labels = dense.labels[dense.labels >= 0]
    rows = len(dense.labels)
    data = Data(
        labels,
        rows,
        dense.vectors,
        path,
        dense.provenance,
        {name: [pathlib.Path(value) for value in flag.value] for name, flag in _OTHERS.items()},
        K.value,
        None if THRESHOLD.value < 0 else THRESHOLD.value,
        _BUILD_THREADS.value,
    )
    if DISTRACTORS.value > rows - len(labels):
        print(f"--distractors={DISTRACTORS.value}: {path} has {rows - len(labels)}")
    try:
        check_unit_norm(f"--dense={path}", data.dense)
        for name, methods in METHODS.items():
            if name in ONLY.value or not ONLY.value:
                for method in methods(data):
                    evaluate(method, data, folder)
    except ValueError as error:
        raise app.UsageError(str(error)) from error
    same = {"data": DATA_NAME.value, "distractors": rows - len(labels)}
    found = records.load(folder, "megaface")
    print(table([record for record in found if same.items() <= record.items()]))


if __name__ == "__main__":
    app.run(main)
