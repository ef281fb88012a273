r"""Keeps what the report's gallery shows: queries, what was found, and what dimensions respond to.

    python -m sparse_embed.experiments.evaluate_gallery --database=runs/flops/identification.npz \
        --gallery_images=runs/images/identification.npy --records=runs/records

The images are bytes, (rows, height, width), as `datasets.glyph_sets` stores them, row by row those
of the embeddings; rows labelled -1 are distractors. Queries are drawn at random among all that have
a mate, and some more among those whose first result is wrong.
"""

from typing import Any

import numpy as np
import scipy.sparse
from absl import flags

from sparse_embed import retrieval
from sparse_embed.experiments import embeddings, records
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DATA_NAME
from sparse_embed.flags.output import RECORDS
from sparse_embed.flags.retrieval import DATABASE
from sparse_embed.retrieval.metrics import drop_self, has_mate

_IMAGES = flags.DEFINE_string("gallery_images", None, "Images of the database's rows (.npy).")

RESULTS, RANDOM_QUERIES, WRONG_QUERIES, DIMENSIONS = 6, 8, 4, 24
SAMPLE = 1000  # queries that are searched to find wrong ones


def evaluate(
    vectors: scipy.sparse.csr_array, labels: np.ndarray, images: np.ndarray, seed: int = 0
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Searches some rows among all others; returns the figures of a record and what to show.

    Args:
        vectors: sparse embeddings.
        labels: of the rows, -1 for none.
        images: of the rows.
        seed: of the draw of queries.

    Returns:
        `queries` and their first result's correctness among the figures. Raw results: `images`
        shown (each once), `indptr`, `indices`, `data` of their codes; `queries` (q,), `results`
        (q, 6), `is_right`, `scores`; `dimensions` (n,), `responses` (n, 6) the images in which each
        is highest, `activations` (n, 6). Images are named by their place among those shown.
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

    figures = {
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
    return figures, arrays


def main() -> None:
    """Reads the flags and keeps the gallery."""
    folder = app.writable_folder("records", RECORDS.value)
    path = app.existing_path("database", DATABASE.value)
    image_path = app.existing_path("gallery_images", _IMAGES.value)
    try:
        found = embeddings.load(path)
    except ValueError as error:
        raise app.UsageError(f"--database={path}: {error}") from error
    images = np.load(image_path, mmap_mode="r")
    if not found.is_sparse or len(images) != len(found.labels):
        raise app.UsageError(
            f"--database={path}: expected sparse embeddings of the {len(images)} images in "
            f"{image_path}"
        )
    objective = found.provenance.get("train", {}).get("objective", {})
    key = {
        "experiment": "gallery",
        "data": DATA_NAME.value,
        "method": objective.get("regularizer", "sparse"),
        "setting": {"weight": objective.get("regularizer_weight"), "run": path.parent.name},
        "flags": {},
    }
    name = records.record_name("gallery", DATA_NAME.value, key["method"], path.parent.name)
    records.update(folder, name, key, [path], lambda: evaluate(found.vectors, found.labels, images))


if __name__ == "__main__":
    app.run(main)
