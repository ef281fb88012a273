"""Sparse codes beside what one could do instead: time, bytes, and dense neighbours found.

All methods search the same rows for the same queries, one at a time on one thread, in turns. The
truth is what exhaustive dense search finds.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.files import atomic_path
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.timing import timed
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.retrieval import (
    BASELINES,
    DenseSearch,
    HNSWSearch,
    IVFPQSearch,
    Reranker,
    SparseIndex,
    TwoStage,
    flops_per_row,
)
from sparse_embed.retrieval.faiss_search import ROWS_PER_CENTROID
from sparse_embed.retrieval.tuning import share_found

K = 10
SHORTLIST = 100  # rows that are re-ranked
_EF = (16, 32, 64, 128)
_PROBES = (1, 4, 16, 64)


@dataclasses.dataclass
class Entry:
    """A method at one setting: `search(i)` returns the ids for query i."""

    method: str
    setting: dict[str, Any]
    search: Callable[[int], np.ndarray]
    bytes_per_row: float
    flops_per_row: float | None = None
    seconds: list[float] = dataclasses.field(default_factory=list)
    found: list[np.ndarray] = dataclasses.field(default_factory=list)


def measure(
    dense: np.ndarray,
    codes: scipy.sparse.csr_array,
    dense_queries: np.ndarray,
    query_codes: scipy.sparse.csr_array,
    num_threads: int,
) -> list[Record]:
    """Returns a record for each method and setting, sparse ones first.

    Records have `method`, `setting`, `recall_at_10` (of dense neighbours), `flops_per_row` where it
    is known, `bytes_per_row` (all that a search needs) and `milliseconds_per_query`.

    Args:
        dense: (rows, d) of unit norm.
        codes: their sparse codes.
        dense_queries: (queries, d) of unit norm, other rows.
        query_codes: their sparse codes.
        num_threads: threads to build with.
    """
    rows, dims = dense.shape
    entries = list(_sparse_entries(dense, codes, dense_queries, query_codes))
    exhaustive = DenseSearch(dense)
    truth = exhaustive.search(dense_queries, K, num_threads=num_threads)[1]
    search = _asking(exhaustive, dense_queries)
    entries.append(Entry("exhaustive dense", {}, search, 4.0 * dims, dims))
    entries += _rivals(dense, dense_queries, num_threads)
    for i in progress_bar(range(len(dense_queries)), desc="comparing", unit="query"):
        for entry in entries:
            ids, seconds = timed(functools.partial(entry.search, i))
            entry.seconds.append(seconds)
            entry.found.append(ids)
    return [
        {
            "method": entry.method,
            "setting": entry.setting,
            "rows": rows,
            "recall_at_10": share_found(np.array(entry.found), truth),
            "flops_per_row": entry.flops_per_row,
            "bytes_per_row": entry.bytes_per_row,
            "milliseconds_per_query": 1e3 * float(np.median(entry.seconds)),
        }
        for entry in entries
    ]


def table(records: list[Record]) -> str:
    """The records as a text table."""
    head = ["method", f"recall@{K}", "F", "bytes/row", "ms/query", "setting"]
    return text_table(
        head,
        [
            [
                record["method"],
                f"{record['recall_at_10']:.3f}",
                "-" if record["flops_per_row"] is None else f"{record['flops_per_row']:.4g}",
                f"{record['bytes_per_row']:.0f}",
                f"{record['milliseconds_per_query']:.3f}",
                ", ".join(f"{key} {value}" for key, value in record["setting"].items()),
            ]
            for record in records
        ],
    )


def draw(records: list[Record], path: pathlib.Path) -> None:
    """Draws recall against time per query, a curve for each method; labels are bytes per row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    looks = {"sparse": ("#0072B2", "o"), "sparse, re-ranked": ("#56B4E9", "s")}
    for look in (BASELINES[key].look for key in ("dense", "hnsw", "ivfpq")):
        looks[look.label] = (look.colour, look.marker)
    looks["IVF-PQ, re-ranked"] = ("#E69F00", "v")
    figure, axes = pyplot.subplots(figsize=(6.5, 4.2))
    for name, (colour, marker) in looks.items():
        points = sorted(
            (record["milliseconds_per_query"], record["recall_at_10"], record["bytes_per_row"])
            for record in records
            if record["method"] == name
        )
        if not points:
            continue
        times, recalls, sizes = zip(*points, strict=True)
        label = f"{name}, {sizes[-1]:.0f} bytes per row"
        axes.semilogx(times, recalls, color=colour, marker=marker, label=label)
    axes.set_xlabel("milliseconds per query, one thread")
    axes.set_ylabel(f"share of the {K} nearest dense rows found")
    axes.set_title(f"{records[0]['rows']:,} rows")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)


def _asking(index: Any, queries: Any, **attributes: Any) -> Callable[[int], np.ndarray]:
    """Returns the function that answers query i, with the attributes of the index set before."""
    each = [queries[[i]] for i in range(queries.shape[0])]  # to cut them out is no search

    def answer(i: int) -> np.ndarray:
        for name, value in attributes.items():
            setattr(index, name, value)
        ids: np.ndarray = index.search(each[i], K)[1][0]
        return ids

    return answer


def _reranking(
    index: Any, queries: Any, reranker: Reranker, dense: np.ndarray, **attributes: Any
) -> Callable[[int], np.ndarray]:
    """The same, with the best rows re-ranked by dense ones."""
    two_stage = TwoStage(index, reranker)
    each = [(queries[[i]], dense[[i]]) for i in range(queries.shape[0])]

    def answer(i: int) -> np.ndarray:
        for name, value in attributes.items():
            setattr(index, name, value)
        ids: np.ndarray = two_stage.search(*each[i], k=K, shortlist=SHORTLIST)[1][0]
        return ids

    return answer


def _sparse_entries(
    dense: np.ndarray,
    codes: scipy.sparse.csr_array,
    dense_queries: np.ndarray,
    query_codes: scipy.sparse.csr_array,
) -> list[Entry]:
    """Our index, alone and re-ranked."""
    index = SparseIndex.build(codes)
    size, cost = index.nbytes / codes.shape[0], flops_per_row(codes)
    reranked = _reranking(index, query_codes, Reranker(dense), dense_queries)
    whole = size + 4.0 * dense.shape[1]
    return [
        Entry("sparse", {}, _asking(index, query_codes), size, cost),
        Entry("sparse, re-ranked", {"shortlist": SHORTLIST}, reranked, whole, cost),
    ]


def _rivals(dense: np.ndarray, queries: np.ndarray, num_threads: int) -> list[Entry]:
    """HNSW and IVF-PQ, the latter alone and re-ranked, at some settings each."""
    rows, dims = dense.shape
    entries = []
    graph = HNSWSearch(dense, m=16, ef_construction=100, num_threads=num_threads)
    for ef in _EF:
        search = _asking(graph, queries, ef_search=ef)
        entries.append(Entry("HNSW", {"m": 16, "ef_search": ef}, search, graph.nbytes / rows))
    codes = max(m for m in range(1, 97) if dims % m == 0)
    lists = max(1, min(4096, rows // ROWS_PER_CENTROID, round(4 * rows**0.5)))
    quantized = IVFPQSearch(dense, nlist=lists, m=codes, nprobe=1, num_threads=num_threads)
    size, reranker = quantized.nbytes / rows, Reranker(dense)
    for nprobe in sorted({min(count, quantized.settings["nlist"]) for count in _PROBES}):
        setting = {**quantized.settings, "nprobe": nprobe}
        search = _asking(quantized, queries, nprobe=nprobe)
        entries.append(Entry("IVF-PQ", setting, search, size))
        search = _reranking(quantized, queries, reranker, queries, nprobe=nprobe)
        setting = {**setting, "shortlist": SHORTLIST}
        entries.append(Entry("IVF-PQ, re-ranked", setting, search, size + 4.0 * dims))
    return entries
