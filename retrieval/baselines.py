"""The table of baselines: every comparison of search methods takes all of its rows.

The settings are the paper's (appendix, "Hyper-parameters"), for PCA and LSH those of both of its
networks; HNSW is not in the paper. To add a baseline, write a class with the protocol `Search` and
put a row here, or `BASELINES["name"] = Baseline(...)` from outside.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from sparse_embed.common.looks import Look
from sparse_embed.retrieval.dense import DenseSearch
from sparse_embed.retrieval.faiss_search import (
    ROWS_PER_CENTROID,
    HNSWSearch,
    IVFPQSearch,
    LSHSearch,
)
from sparse_embed.retrieval.pca import PCASearch

Setting = dict[str, Any]

PCA_DIMS = (48, 64, 96, 128, 256)
LSH_BITS = (256, 512, 768, 1024, 2048, 3072)
NLIST, NPROBES = 4096, (50, 100, 150, 250, 500, 1000)
EF_SEARCH = (128, 256, 512, 1024)


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A method of search with the settings of its trade-off curve.

    Attributes:
        search: makes the search: (rows, **build setting, num_threads=...) -> `Search`.
        look: how it is shown.
        builds: (rows, dims) of the database -> settings to build with.
        queries: build setting -> attributes to set between searches.
        over: "dense" or "sparse", which embeddings it searches.
        reranked: whether its shortlist is re-ranked by dense embeddings; False if it scores by them
            itself.
        exact: whether it finds the true neighbours.
        module: the module that it needs installed, if any.
    """

    search: Callable[..., Any]
    look: Look
    builds: Callable[[int, int], Iterable[Setting]] = lambda rows, dims: [{}]
    queries: Callable[[Setting], Iterable[Setting]] = lambda build: [{}]
    over: str = "dense"
    reranked: bool = True
    exact: bool = False
    module: str | None = None


def _dense(rows: Any, num_threads: int = 1) -> DenseSearch:
    del num_threads  # nothing is built
    return DenseSearch(rows)


def _ivfpq_builds(rows: int, dims: int) -> Iterable[Setting]:
    """The paper's lists, or fewer for a small database; as many codes as fit, up to 64."""
    nlist = min(NLIST, max(1, rows // ROWS_PER_CENTROID))
    return [{"nlist": nlist, "m": next(m for m in (64, 32, 16, 8, 4, 2, 1) if dims % m == 0)}]


BASELINES = {
    "dense": Baseline(_dense, Look("exhaustive dense", "#000000", "*"), reranked=False, exact=True),
    "pca": Baseline(
        PCASearch,
        Look("PCA", "#56B4E9", "D"),
        lambda rows, dims: [{"dims": kept} for kept in PCA_DIMS if kept < dims],
    ),
    "lsh": Baseline(
        LSHSearch,
        Look("LSH", "#E69F00", "v"),
        lambda rows, dims: [{"bits": bits} for bits in LSH_BITS],
        module="faiss",
    ),
    "ivfpq": Baseline(
        IVFPQSearch,
        Look("IVF-PQ", "#009E73", "^"),
        _ivfpq_builds,
        lambda build: [{"nprobe": n} for n in sorted({min(n, build["nlist"]) for n in NPROBES})],
        module="faiss",
    ),
    "hnsw": Baseline(
        HNSWSearch,
        Look("HNSW", "#7F7F7F", "P"),
        lambda rows, dims: [{"m": 16, "ef_construction": 100}],
        lambda build: [{"ef_search": ef} for ef in EF_SEARCH],
        reranked=False,
        module="faiss",
    ),
}
