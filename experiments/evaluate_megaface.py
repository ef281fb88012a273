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
"""

import dataclasses
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from absl import flags

from sparse_embed import retrieval
from sparse_embed.experiments import embeddings, records
from sparse_embed.experiments.embeddings import Embeddings
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DATA_NAME, DISTRACTORS, ONLY, TIMED_QUERIES
from sparse_embed.flags.output import RECORDS
from sparse_embed.flags.retrieval import THRESHOLD, K
from sparse_embed.retrieval.faiss_search import ROWS_PER_CENTROID
from sparse_embed.retrieval.megaface import KS, identification_ranks, recall_of_ranks
from sparse_embed.retrieval.metrics import check_unit_norm
from sparse_embed.retrieval.rerank import Index

_DENSE = flags.DEFINE_string(
    "dense", None, "Dense embeddings (.npy) that everything re-ranks with."
)
_NARROW_DENSE = flags.DEFINE_list(
    "narrow_dense", [], "More dense embeddings (.npy), such as 128-d ones: exhaustive search alone."
)
_SPARSE = flags.DEFINE_list("sparse", [], "Sparse embeddings (.npz) of one or several encoders.")
_SDH = flags.DEFINE_list("sdh", [], "Hash codes (.npz) of one or several encoders.")

_BUILD_THREADS = flags.DEFINE_integer(
    "build_threads",
    os.cpu_count() or 1,
    "Threads to build and to find the recall with; queries are timed on one in any case.",
    lower_bound=1,
)

PCA_DIMS = (48, 64, 96, 128, 256)
LSH_BITS = (256, 512, 768, 1024, 2048, 3072)
NLIST, NPROBES = 4096, (50, 100, 150, 250, 500, 1000)
EF_SEARCH = (128, 256, 512, 1024)
_WARM_UP = 10  # queries
_TIME_BUDGET = 30.0  # seconds per method and setting, but at least 20 queries


@dataclasses.dataclass(frozen=True)
class Data:
    """All that is searched: row by row the same images.

    Attributes:
        labels: identity of each probe, which are the first rows.
        rows: number of probes and distractors.
        dense: embeddings to re-rank with, memory-mapped.
        path: their file.
        lists: which lists the images are from and what was left out as noise; None for glyphs.
    """

    labels: np.ndarray
    rows: int
    dense: np.ndarray
    path: pathlib.Path
    lists: dict[str, Any] | None = None

    @functools.cached_property
    def floats(self) -> np.ndarray:
        """The dense embeddings as float32 in memory."""
        return np.asarray(self.dense, np.float32)

    @functools.cached_property
    def reranker(self) -> retrieval.Reranker:
        """Of the dense embeddings where they are."""
        return retrieval.Reranker(self.dense)

    @property
    def dense_probes(self) -> np.ndarray:
        """Dense embeddings of the probes."""
        return np.asarray(self.dense[: len(self.labels)], np.float32)


@dataclasses.dataclass(frozen=True)
class Method:
    """One point of a trade-off curve: an index with its settings.

    Attributes:
        name: see `records`.
        setting: what tells it from other points of the curve.
        build: returns the index and the seconds that it took to build.
        probes: queries of the index.
        path: the file that it is made of, if that is not the dense one.
        shortlist: longest shortlist; None for all that the index finds.
        threshold: lowest score on it.
        reranked: whether to measure it without and with re-ranking.
        figures: what else there is to say of it.
    """

    name: str
    setting: dict[str, Any]
    build: Callable[[], tuple[Index, float]]
    probes: Any
    path: pathlib.Path | None = None
    shortlist: int | None = 1000
    threshold: float | None = None
    reranked: tuple[bool, ...] = (False, True)
    figures: Callable[[Any], dict[str, Any]] = lambda index: {}


def timed(build: Callable[[], Index]) -> Callable[[], tuple[Index, float]]:
    """Returns a function that builds once and tells how long it took."""

    def run() -> tuple[Index, float]:
        start = time.perf_counter()
        index = build()
        return index, time.perf_counter() - start

    return functools.cache(run)


def compressed(data: Data, kind: Callable[..., Index], *settings: int) -> Callable:
    """Returns a function that builds a search over the dense embeddings."""
    return timed(lambda: kind(data.floats, *settings, num_threads=_BUILD_THREADS.value))


def scan_cost(dims: int, index: Index) -> dict[str, Any]:
    """The multiply-adds of going over all rows."""
    del index
    return {"dim": dims, "flops_per_row": float(dims)}


def exhaustive(data: Data) -> Iterator[Method]:
    """Exhaustive search, over what re-ranks and over narrower dense embeddings."""
    files = {data.path: data.dense}
    for value in _NARROW_DENSE.value:
        files[pathlib.Path(value)] = _load("narrow_dense", pathlib.Path(value), data).vectors
    for path, vectors in files.items():
        dims = vectors.shape[1]
        yield Method(
            "dense",
            {"dims": dims},
            timed(functools.partial(_dense_search, vectors)),
            np.asarray(vectors[: len(data.labels)], np.float32),
            path,
            K.value,
            reranked=(False,),
            figures=functools.partial(scan_cost, dims),
        )


def _dense_search(vectors: np.ndarray) -> Index:
    return retrieval.DenseSearch(np.asarray(vectors, np.float32))


def pca(data: Data) -> Iterator[Method]:
    """Exhaustive search after PCA; the multiply-adds are those of the scan."""
    for dims in PCA_DIMS:
        if dims < data.dense.shape[1]:
            yield Method(
                "pca",
                {"dims": dims},
                compressed(data, retrieval.PCASearch, dims),
                data.dense_probes,
                shortlist=K.value,
                figures=functools.partial(scan_cost, dims),
            )


def lsh(data: Data) -> Iterator[Method]:
    """Hamming distances of random projections' signs."""
    for bits in LSH_BITS:
        build = compressed(data, retrieval.LSHSearch, bits)
        yield Method("lsh", {"bits": bits}, build, data.dense_probes, shortlist=K.value)


def ivfpq(data: Data) -> Iterator[Method]:
    """IVF-PQ with the paper's settings, or smaller ones for a small database."""
    nlist = min(NLIST, max(1, data.rows // ROWS_PER_CENTROID))
    if nlist < NLIST:
        print(f"ivfpq: {data.rows} rows are too few for nlist={NLIST}, using {nlist}")
    m = next(m for m in (64, 32, 16, 8, 4, 2, 1) if data.dense.shape[1] % m == 0)
    build = compressed(data, retrieval.IVFPQSearch, nlist, m)

    def set_up(nprobe: int) -> tuple[Index, float]:
        index, seconds = build()
        index.nprobe = nprobe  # type: ignore[attr-defined]
        return index, seconds

    for nprobe in sorted({min(nprobe, nlist) for nprobe in NPROBES}):
        yield Method(
            "ivfpq",
            {"nlist": nlist, "m": m, "nprobe": nprobe},
            functools.partial(set_up, nprobe),
            data.dense_probes,
            shortlist=K.value,
        )


def hnsw(data: Data) -> Iterator[Method]:
    """A graph over the dense rows themselves: nothing to re-rank, so the shortlist is short."""
    build = compressed(data, retrieval.HNSWSearch, 16, 100)

    def set_up(ef_search: int) -> tuple[Index, float]:
        index, seconds = build()
        index.ef_search = ef_search  # type: ignore[attr-defined]
        return index, seconds

    for ef_search in EF_SEARCH:
        yield Method(
            "hnsw",
            {"m": 16, "ef_construction": 100, "ef_search": ef_search},
            functools.partial(set_up, ef_search),
            data.dense_probes,
            shortlist=min(K.value, max(KS)),
            reranked=(False,),
        )


def sparse(data: Data) -> Iterator[Method]:
    """The inverted index over each file of sparse embeddings."""
    for value in _SPARSE.value:
        path = pathlib.Path(value)
        found = _load("sparse", path, data)
        objective = found.provenance.get("train", {}).get("objective", {})
        vectors = found.vectors
        check_unit_norm(f"--sparse={path}", vectors)
        probes = vectors[: len(data.labels)]

        def figures(index: Any, vectors: Any = vectors, probes: Any = probes) -> dict[str, Any]:
            return {
                "dim": vectors.shape[1],
                "flops_per_row": retrieval.flops_per_row(vectors),
                "multiply_adds_per_query": float(index.flops(probes).mean()),
                "activation_probability": float(vectors.nnz / np.prod(vectors.shape)),
                "suboptimality_ratio": retrieval.suboptimality_ratio(vectors),
            }

        yield Method(
            objective.get("regularizer", "sparse"),
            {"weight": objective.get("regularizer_weight"), "run": path.parent.name},
            timed(functools.partial(retrieval.SparseIndex.build, vectors, _BUILD_THREADS.value)),
            probes,
            path,
            K.value,
            None if THRESHOLD.value < 0 else THRESHOLD.value,
            figures=figures,
        )


def sdh(data: Data) -> Iterator[Method]:
    """Hash buckets; all candidates are re-ranked, which is what its multiply-adds count."""
    for value in _SDH.value:
        path = pathlib.Path(value)
        codes: Any = _load("sdh", path, data).vectors
        probes = codes[: len(data.labels)]

        def figures(index: Any, probes: Any = probes) -> dict[str, Any]:
            candidates = float(
                index.num_candidates(probes[:: max(1, len(data.labels) // 300)]).mean()
            )
            return {
                "dim": index.shape[1],
                "candidates": candidates,
                "flops_per_row": data.dense.shape[1] * candidates / data.rows,
            }

        yield Method(
            "sdh",
            {"active_bits": round(codes.nnz / codes.shape[0]), "run": path.parent.name},
            timed(functools.partial(retrieval.SDHSearch, codes, _BUILD_THREADS.value)),
            probes,
            path,
            shortlist=None,
            reranked=(True,),
            figures=figures,
        )


METHODS = {
    "sparse": sparse,
    "sdh": sdh,
    "dense": exhaustive,
    "pca": pca,
    "lsh": lsh,
    "ivfpq": ivfpq,
    "hnsw": hnsw,
}


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
            num_threads=_BUILD_THREADS.value,
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
            "lists": data.lists,
            "flags": {
                "k": method.shortlist,
                "threshold": method.threshold,
                "timed_queries": TIMED_QUERIES.value,
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


def _load(flag: str, path: pathlib.Path, data: Data | None = None) -> Embeddings:
    """Reads embeddings of probes and distractors; UsageError if they are not, or not the same."""
    app.existing_path(flag, str(path))
    try:
        found = embeddings.load(path)
    except ValueError as error:
        raise app.UsageError(f"--{flag}: {error}") from error
    if found.is_sparse != (flag in ("sparse", "sdh")):
        kind = "dense" if flag in ("dense", "narrow_dense") else "sparse"
        raise app.UsageError(f"--{flag}={path}: expected {kind} embeddings")
    count = int(np.argmax(found.labels < 0))
    if count == 0 or (found.labels[:count] < 0).any() or (found.labels[count:] >= 0).any():
        raise app.UsageError(
            f"--{flag}={path}: expected labelled rows, the probes, and after them rows labelled "
            "-1, the distractors"
        )
    rows = min(len(found.labels), count + DISTRACTORS.value)
    if data is not None and (
        rows != data.rows or not np.array_equal(found.labels[:count], data.labels)
    ):
        raise app.UsageError(
            f"--{flag}={path}: {count} probes and {rows - count} distractors are not those of "
            f"--dense={data.path}"
        )
    return Embeddings(found.vectors[:rows], found.labels[:rows], found.provenance)


def main() -> None:
    """Reads the flags and evaluates every method that they name."""
    folder = app.writable_folder("records", RECORDS.value)
    for name in ONLY.value:
        if name not in METHODS:
            raise app.UsageError(f"--only={name}: expected some of {', '.join(METHODS)}")
    path = app.existing_path("dense", _DENSE.value)
    dense = _load("dense", path)
    labels = dense.labels[dense.labels >= 0]
    lists = dense.provenance.get("megaface")
    data = Data(labels, len(dense.labels), dense.vectors, path, lists)
    if DISTRACTORS.value > data.rows - len(labels):
        print(f"--distractors={DISTRACTORS.value}: {path} has {data.rows - len(labels)}")
    try:
        check_unit_norm(f"--dense={path}", data.dense)
        for name, methods in METHODS.items():
            if name in ONLY.value or not ONLY.value:
                for method in methods(data):
                    evaluate(method, data, folder)
    except ValueError as error:
        raise app.UsageError(str(error)) from error


if __name__ == "__main__":
    app.run(main)
