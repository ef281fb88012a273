"""The report's gallery: queries, their results, and the images that dimensions respond to."""

import pathlib

import numpy as np
import scipy.sparse

from sparse_embed import retrieval
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.core.records import Record
from sparse_embed.retrieval.metrics import drop_self, has_mate

RESULTS, RANDOM_QUERIES, WRONG_QUERIES, DIMENSIONS = 6, 8, 4, 24
SAMPLE = 1000  # queries searched to find wrong ones


def evaluate(
    vectors: scipy.sparse.csr_array, labels: np.ndarray, images: np.ndarray, seed: int = 0
) -> tuple[Record, dict[str, np.ndarray]]:
    """Searches some rows among all others; returns a record's metrics and raw results.

    Args:
        vectors: sparse embeddings.
        labels: labels of the rows, -1 for none.
        images: images of the rows.
        seed: of the draw of queries.

    Returns:
        Metrics: `queries` and the correctness of their first results. Raw results: `images`
        shown (each once), `indptr`, `indices`, `data` of their codes; `queries` (q,), `results`
        (q, 6), `is_right`, `scores`; `dimensions` (n,), `responses` (n, 6) the images in which each
        is highest, `activations` (n, 6). Numbers of images are their places among those shown.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    candidates = np.flatnonzero((labels >= 0) & has_mate(labels))
    sample = random.permutation(candidates)[:SAMPLE]
    index = retrieval.SparseIndex.build(vectors)
    scores, ids = index.search(vectors[sample], RESULTS + 1)
    shift = (np.arange(len(sample)) - sample)[:, None]  # drop_self expects row i to be query i
    scores, ids = drop_self(scores, ids + shift)
    ids = ids - shift
    right = (ids >= 0) & (labels[ids] == labels[sample][:, None])
    wrong = np.flatnonzero(~right[RANDOM_QUERIES:, 0]) + RANDOM_QUERIES
    chosen = np.concatenate([np.arange(min(RANDOM_QUERIES, len(sample))), wrong[:WRONG_QUERIES]])

    queries, results = sample[chosen], ids[chosen]
    codes = vectors[queries]
    strength = np.asarray(codes.multiply(codes).sum(axis=0)).ravel()
    dimensions = np.argsort(-strength, kind="stable")[:DIMENSIONS]
    columns = scipy.sparse.csc_array(vectors[:, dimensions])
    responses = np.full((len(dimensions), RESULTS), -1)
    activations = np.zeros((len(dimensions), RESULTS), np.float32)
    for place in range(len(dimensions)):
        part = slice(columns.indptr[place], columns.indptr[place + 1])
        best = np.argsort(-columns.data[part], kind="stable")[:RESULTS]
        responses[place, : len(best)] = columns.indices[part][best]
        activations[place, : len(best)] = columns.data[part][best]

    shown = np.unique(np.concatenate([queries, results.ravel(), responses.ravel()]))
    shown = shown[shown >= 0]
    codes = vectors[shown]

    def place_of(rows: np.ndarray) -> np.ndarray:
        return np.where(rows >= 0, np.searchsorted(shown, rows), -1)

    metrics = {
        "queries": len(chosen),
        "random_queries": min(RANDOM_QUERIES, len(sample)),
        "dim": int(vectors.shape[1]),
        "rows": int(vectors.shape[0]),
        "first_result_right": float(right[:, 0].mean()),
    }
    arrays = {
        "images": images[shown],
        "indptr": codes.indptr,
        "indices": codes.indices,
        "data": codes.data,
        "queries": place_of(queries),
        "results": place_of(results),
        "is_right": right[chosen],
        "scores": scores[chosen],
        "dimensions": dimensions,
        "responses": place_of(responses),
        "activations": activations,
    }
    return metrics, arrays


def update(
    folder: pathlib.Path,
    path: pathlib.Path,
    found: Embeddings,
    images: np.ndarray,
    data_name: str,
) -> None:
    """Updates the record of the gallery of one file of sparse embeddings."""
    key = {
        "experiment": "gallery",
        "data": data_name,
        "method": found.method,
        "setting": {**found.setting, "run": path.parent.name},
        "flags": {},
    }
    records.update(folder, key, [path], lambda: evaluate(found.vectors, found.labels, images))
