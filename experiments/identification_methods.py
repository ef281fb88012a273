"""The methods of search that identification compares: what each builds, and with which settings.

Every function of `METHODS` takes the `Data` and yields one `Method` per point of its trade-off
curve. The settings are the paper's (appendix, "Hyper-parameters"), PCA and LSH those of both of its
networks; HNSW is not in the paper.
"""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sparse_embed import retrieval
from sparse_embed.experiments import embeddings
from sparse_embed.experiments.embeddings import Embeddings
from sparse_embed.flags import app
from sparse_embed.retrieval.faiss_search import ROWS_PER_CENTROID
from sparse_embed.retrieval.megaface import KS
from sparse_embed.retrieval.metrics import check_unit_norm
from sparse_embed.retrieval.rerank import Index

PCA_DIMS = (48, 64, 96, 128, 256)
LSH_BITS = (256, 512, 768, 1024, 2048, 3072)
NLIST, NPROBES = 4096, (50, 100, 150, 250, 500, 1000)
EF_SEARCH = (128, 256, 512, 1024)


@dataclasses.dataclass(frozen=True)
class Data:
    """All that is searched: row by row the same images.

    Attributes:
        labels: identity of each probe, which are the first rows.
        rows: number of probes and distractors.
        dense: embeddings to re-rank with, memory-mapped.
        path: their file.
        note: how they were made.
        others: by flag, the files of other encoders' embeddings: narrow_dense, sparse, sdh.
        k: longest shortlist.
        threshold: lowest sparse score on it, None for any.
        num_threads: to build with.
    """

    labels: np.ndarray
    rows: int
    dense: np.ndarray
    path: pathlib.Path
    note: dict[str, Any]
    others: dict[str, list[pathlib.Path]]
    k: int
    threshold: float | None
    num_threads: int

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
        train: flags of the encoder's training.
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
    train: dict[str, Any] | None = None


def timed(build: Callable[[], Index]) -> Callable[[], tuple[Index, float]]:
    """Returns a function that builds once and tells how long it took."""

    def run() -> tuple[Index, float]:
        start = time.perf_counter()
        index = build()
        return index, time.perf_counter() - start

    return functools.cache(run)


def compressed(data: Data, kind: Callable[..., Index], *settings: int) -> Callable:
    """Returns a function that builds a search over the dense embeddings."""
    return timed(lambda: kind(data.floats, *settings, num_threads=data.num_threads))


def scan_cost(dims: int, index: Index) -> dict[str, Any]:
    """The multiply-adds of going over all rows."""
    del index
    return {"dim": dims, "flops_per_row": float(dims)}


def exhaustive(data: Data) -> Iterator[Method]:
    """Exhaustive search, over what re-ranks and over narrower dense embeddings."""
    parts = {data.path: Embeddings(data.dense, data.labels, data.note)}
    parts |= {path: load_beside(data, "narrow_dense", path) for path in data.others["narrow_dense"]}
    for path, found in parts.items():
        vectors = found.vectors
        dims = vectors.shape[1]
        yield Method(
            "dense",
            {"dims": dims},
            timed(functools.partial(_dense_search, vectors)),
            np.asarray(vectors[: len(data.labels)], np.float32),
            path,
            data.k,
            reranked=(False,),
            figures=functools.partial(scan_cost, dims),
            train=found.provenance.get("train"),
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
                shortlist=data.k,
                figures=functools.partial(scan_cost, dims),
            )


def lsh(data: Data) -> Iterator[Method]:
    """Hamming distances of random projections' signs."""
    for bits in LSH_BITS:
        build = compressed(data, retrieval.LSHSearch, bits)
        yield Method("lsh", {"bits": bits}, build, data.dense_probes, shortlist=data.k)


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
            shortlist=data.k,
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
            shortlist=min(data.k, max(KS)),
            reranked=(False,),
        )


def sparse(data: Data) -> Iterator[Method]:
    """The inverted index over each file of sparse embeddings."""
    for path in data.others["sparse"]:
        found = load_beside(data, "sparse", path)
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
            timed(functools.partial(retrieval.SparseIndex.build, vectors, data.num_threads)),
            probes,
            path,
            data.k,
            data.threshold,
            figures=figures,
            train=found.provenance.get("train"),
        )


def sdh(data: Data) -> Iterator[Method]:
    """Hash buckets; all candidates are re-ranked, which is what its multiply-adds count."""
    for path in data.others["sdh"]:
        found = load_beside(data, "sdh", path)
        codes: Any = found.vectors
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
            timed(functools.partial(retrieval.SDHSearch, codes, data.num_threads)),
            probes,
            path,
            shortlist=None,
            reranked=(True,),
            figures=figures,
            train=found.provenance.get("train"),
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


def load(flag: str, path: pathlib.Path, distractors: int) -> Embeddings:
    """Reads embeddings of probes and of so many distractors; UsageError if they are not that."""
    app.existing_path(flag, str(path))
    try:
        found = embeddings.load(path)
    except ValueError as error:
        raise app.UsageError(f"--{flag}: {error}") from error
    kind = "sparse" if flag in ("sparse", "sdh") else "dense"
    if found.is_sparse != (kind == "sparse"):
        raise app.UsageError(f"--{flag}={path}: expected {kind} embeddings")
    count = int(np.argmax(found.labels < 0))
    if count == 0 or (found.labels[:count] < 0).any() or (found.labels[count:] >= 0).any():
        raise app.UsageError(
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
        raise app.UsageError(
            f"--{flag}={path}: {probes} probes and {len(found.labels) - probes} distractors are "
            f"not those of --dense={data.path}"
        )
    return found
