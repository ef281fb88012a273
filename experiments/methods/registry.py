"""The methods of search that identification compares, with the settings of each.

The baselines are the rows of `retrieval.BASELINES`; besides them there are the inverted index over
sparse embeddings, the buckets of Sparse Deep Hashing, and exhaustive search over narrow embeddings.
"""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sparse_embed import retrieval
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.embedding_files import Embeddings, load_flag
from sparse_embed.experiments.core.records import cut_method
from sparse_embed.retrieval.megaface import KS
from sparse_embed.retrieval.metrics import check_unit_norm

Build = Callable[[], tuple[Any, float]]


@dataclasses.dataclass(frozen=True)
class Data:
    """The embeddings to search: row by row the same images.

    Attributes:
        dense: embeddings to re-rank with, memory-mapped; the first rows are the probes, labelled
            with their identities, the others the distractors, labelled -1.
        path: their file.
        others: files of other encoders' embeddings by flag: narrow_dense, sparse, sdh.
        k: longest shortlist.
        threshold: lowest sparse score on it, None for any.
        num_threads: threads to build with.
        keep: budgets (rows, queries): how many of their largest values sparse rows, and sparse
            queries, are cut to besides.
    """

    dense: Embeddings
    path: pathlib.Path
    others: dict[str, list[pathlib.Path]]
    k: int
    threshold: float | None
    num_threads: int
    keep: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        """Number of probes and distractors."""
        return len(self.dense.labels)

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """Identity of each probe."""
        return self.dense.labels[self.dense.labels >= 0]

    @property
    def distractors(self) -> int:
        """Number of distractors."""
        return self.rows - len(self.labels)

    @functools.cached_property
    def floats(self) -> np.ndarray:
        """The dense embeddings as float32 in memory."""
        return np.asarray(self.dense.vectors, np.float32)

    @functools.cached_property
    def reranker(self) -> retrieval.Reranker:
        """Re-ranks by the dense embeddings, which are not copied."""
        return retrieval.Reranker(self.dense.vectors)

    @property
    def dense_probes(self) -> np.ndarray:
        """Dense embeddings of the probes."""
        return np.asarray(self.dense.vectors[: len(self.labels)], np.float32)


@dataclasses.dataclass(frozen=True)
class Method:
    """One point of a trade-off curve: an index with its settings.

    Attributes:
        name: see `records`.
        setting: tells it apart from other points of the curve.
        build: returns the index and the seconds that it took to build.
        probes: queries of the index.
        path: the file that it is made from, if not the dense one.
        shortlist: longest shortlist; None for all candidates of the index.
        threshold: lowest score on it.
        reranked: whether to measure it without and with re-ranking.
        metrics: returns more metrics of the index.
        train: flags of the encoder's training run.
    """

    name: str
    setting: dict[str, Any]
    build: Build
    probes: Any
    path: pathlib.Path | None = None
    shortlist: int | None = 1000
    threshold: float | None = None
    reranked: tuple[bool, ...] = (False, True)
    metrics: Callable[[Any], dict[str, Any]] = lambda index: {}
    train: dict[str, Any] | None = None


def timed(build: Callable[[], Any]) -> Build:
    """Returns a function that builds once and also returns the seconds it took."""

    def run() -> tuple[Any, float]:
        start = time.perf_counter()
        index = build()
        return index, time.perf_counter() - start

    return functools.cache(run)


def baseline(name: str, data: Data) -> Iterator[Method]:
    """One row of the table, at every setting of its grids."""
    row = retrieval.BASELINES[name]
    for setting in row.builds(data.rows, data.dense.vectors.shape[1]):
        build = timed(
            lambda setting=setting: row.search(  # type: ignore[misc]
                data.floats, **setting, num_threads=data.num_threads
            )
        )
        for query in row.queries(setting):
            yield Method(
                name,
                {**setting, **query} or {"dims": data.dense.vectors.shape[1]},
                functools.partial(_set_up, build, query),
                data.dense_probes,
                # If it scores by the dense rows themselves, the largest k of recall@k is enough.
                shortlist=data.k if row.reranked or row.exact else min(data.k, max(KS)),
                reranked=(False, True) if row.reranked else (False,),
                metrics=_scan_cost,
            )


def _set_up(build: Build, query: dict[str, Any]) -> tuple[Any, float]:
    """Builds the index and sets the attributes of its queries."""
    index, seconds = build()
    for attribute, value in query.items():
        setattr(index, attribute, value)
    return index, seconds


def _scan_cost(index: Any) -> dict[str, Any]:
    """The multiply-adds per row of a search that goes over all rows."""
    if not hasattr(index, "flops_per_row"):
        return {}
    return {"dim": int(index.flops_per_row), "flops_per_row": float(index.flops_per_row)}


def narrow_dense(data: Data) -> Iterator[Method]:
    """Exhaustive search over narrower dense embeddings."""
    for path in data.others["narrow_dense"]:
        found = load_beside(data, "narrow_dense", path)
        vectors = np.asarray(found.vectors, np.float32)
        yield Method(
            "dense",
            {"dims": vectors.shape[1]},
            timed(functools.partial(retrieval.DenseSearch, vectors)),
            vectors[: len(data.labels)],
            path,
            data.k,
            reranked=(False,),
            metrics=_scan_cost,
            train=found.provenance.get("train"),
        )


def sparse(data: Data) -> Iterator[Method]:
    """The inverted index over each file of sparse embeddings: as they are, and cut.

    Each budget of `data.keep` gives a method of its own. Its rows are cut when its index is
    built, which budgets with as many values per row share; its probes, which are few, at once.
    """
    for path in data.others["sparse"]:
        found = load_beside(data, "sparse", path)
        vectors: Any = found.vectors
        check_unit_norm(f"--sparse={path}", vectors)
        if found.keep:
            _check_budgets(data, path, found.keep)
        probes = vectors[: len(data.labels)]
        whole = Method(
            found.method,
            {**found.setting, "run": path.parent.name},
            timed(functools.partial(_sparse_index, vectors, None, data.num_threads)),
            probes,
            path,
            data.k,
            data.threshold,
            metrics=functools.partial(_sparse_metrics, vectors, None, probes),
            train=found.provenance.get("train"),
        )
        yield whole
        builds = {
            rows: timed(functools.partial(_sparse_index, vectors, rows, data.num_threads))
            for rows, _ in data.keep
        }
        for rows, queries in data.keep:
            own = {} if queries == rows else {"keep_queries": queries}
            few = _cut(probes, queries)
            yield dataclasses.replace(
                whole,
                name=whole.name if found.keep else cut_method(whole.name),
                setting={**whole.setting, "keep": rows, **own},
                build=builds[rows],
                probes=few,
                metrics=functools.partial(_sparse_metrics, vectors, (rows, queries), few),
            )


def _check_budgets(data: Data, path: pathlib.Path, kept: int) -> None:
    """Raises UsageError unless each budget cuts rows and queries that keep so many already."""
    for rows, queries in data.keep:
        if max(rows, queries) >= kept:
            given = f"{rows}" if rows == queries else f"{rows}:{queries}"
            raise UsageError(
                f"--keep={given}: expected fewer values: --sparse={path} was cut to {kept} values "
                "a row already"
            )


def _cut(vectors: Any, keep: int | None) -> Any:
    """Returns rows cut to `keep` values and scaled to unit norm; the rows themselves if None."""
    return vectors if keep is None else retrieval.keep_largest(vectors, keep, unit_norm=True)


def _sparse_index(vectors: Any, keep: int | None, num_threads: int) -> retrieval.SparseIndex:
    """Returns the inverted index over rows cut to `keep` values."""
    return retrieval.SparseIndex.build(_cut(vectors, keep), num_threads=num_threads)


def _sparse_metrics(
    vectors: Any, budget: tuple[int, int] | None, probes: Any, index: Any
) -> dict[str, Any]:
    """The cost of a search, and how even the rows are.

    The multiply-adds per row are F = sum_j p_j(queries) p_j(rows). Where both are made alike,
    p_j(queries) is that of all rows, not of the few probes.

    Args:
        vectors: rows, not cut.
        budget: how many values rows and queries are cut to; None if they are not.
        probes: queries, cut.
        index: the index over the rows, cut.
    """
    keep, keep_queries = budget or (None, None)
    rows = _cut(vectors, keep)
    metrics = {
        "dim": rows.shape[1],
        "multiply_adds_per_query": float(index.flops(probes).mean()),
        **retrieval.sparsity_metrics(rows),
    }
    if keep != keep_queries:
        of_queries, of_rows = map(retrieval.activation_probability, (probes, rows))
        metrics["flops_per_row"] = float(of_queries @ of_rows)
    return metrics


def sdh(data: Data) -> Iterator[Method]:
    """Hash buckets; all candidates are re-ranked, which is what its multiply-adds count."""
    for path in data.others["sdh"]:
        found = load_beside(data, "sdh", path)
        codes: Any = found.vectors
        probes = codes[: len(data.labels)]

        def metrics(index: Any, probes: Any = probes) -> dict[str, Any]:
            some = probes[:: max(1, len(data.labels) // 300)]
            candidates = float(index.num_candidates(some).mean())
            cost = data.dense.vectors.shape[1] * candidates / data.rows
            return {"dim": index.shape[1], "candidates": candidates, "flops_per_row": cost}

        yield Method(
            "sdh",
            {"active_bits": round(codes.nnz / codes.shape[0]), "run": path.parent.name},
            timed(functools.partial(retrieval.SDHSearch, codes, data.num_threads)),
            probes,
            path,
            shortlist=None,
            reranked=(True,),
            metrics=metrics,
            train=found.provenance.get("train"),
        )


def all_methods() -> dict[str, Callable[[Data], Iterator[Method]]]:
    """Returns every method by its name in --only."""
    own: dict[str, Callable[..., Iterator[Method]]] = {
        "sparse": sparse,
        "sdh": sdh,
        "narrow_dense": narrow_dense,
    }
    return own | {name: functools.partial(baseline, name) for name in retrieval.BASELINES}


def load(flag: str, path: pathlib.Path, distractors: int) -> Embeddings:
    """Reads embeddings of probes and of that many distractors; UsageError if there are others."""
    found = load_flag(flag, path, sparse=flag in ("sparse", "sdh"))
    count = int(np.argmax(found.labels < 0))
    if count == 0 or (found.labels[:count] < 0).any() or (found.labels[count:] >= 0).any():
        raise UsageError(
            f"--{flag}={path}: expected labelled rows, the probes, and after them rows labelled "
            "-1, the distractors"
        )
    rows = count + distractors
    return Embeddings(found.vectors[:rows], found.labels[:rows], found.provenance)


def load_beside(data: Data, flag: str, path: pathlib.Path) -> Embeddings:
    """Reads embeddings of the same images; UsageError if they are others."""
    count = len(data.labels)
    found = load(flag, path, data.rows - count)
    if len(found.labels) != data.rows or not np.array_equal(found.labels[:count], data.labels):
        probes = int((found.labels >= 0).sum())
        raise UsageError(
            f"--{flag}={path}: {probes} probes and {len(found.labels) - probes} distractors are "
            f"not those of --dense={data.path}"
        )
    return found
