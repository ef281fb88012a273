"""Decides by measurement whether labels help: on classes that were not learned from."""

import numpy as np

from sparse_embed.retrieval import SparseIndex
from sparse_embed.retrieval.metrics import has_mate
from sparse_embed.sparsify.encoder import build_encoder, encode
from sparse_embed.sparsify.learning import learn

CONTRAST = 0.03
_HELD_OUT = 0.25  # of the classes
_MOST_QUERIES = 5000
_FEWEST_QUERIES = 100  # fewer cannot tell the two apart


def chosen_contrast(
    rows: np.ndarray,
    labels: np.ndarray,
    atoms: int,
    nonzeros: int,
    steps: int,
    seed: int,
    progress: bool = False,
) -> float:
    """Returns the weight of the supervised contrast: `CONTRAST`, or 0 where labels do not help.

    Codes are learned with and without labels from three quarters of the classes. Each row of the
    others then looks for another of its class. Labels are used if they find more, by more than a
    standard error of the difference: contrast over few classes learns those by heart, and finds
    less of any other.

    Args:
        rows: (n, d) float32 rows of unit norm.
        labels: (n,) class numbers.
        atoms: see `learn`.
        nonzeros: see `learn`.
        steps: see `learn`.
        seed: of the draw of classes, and see `learn`.
        progress: see `learn`.
    """
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(labels))
    unseen = np.isin(labels, classes[: round(_HELD_OUT * len(classes))])
    queries = np.flatnonzero(has_mate(labels[unseen]))
    if len(queries) < _FEWEST_QUERIES or not has_mate(labels[~unseen]).any():
        return 0.0
    queries = rng.permutation(queries)[:_MOST_QUERIES]

    def hits(contrast: float) -> np.ndarray:
        found = learn(
            rows[~unseen],
            atoms,
            nonzeros,
            steps,
            seed,
            labels[~unseen],
            contrast=contrast,
            progress=progress,
        )
        codes = encode(build_encoder(found, nonzeros), rows[unseen])
        _, ids = SparseIndex.build(codes).search(codes[queries], k=2)
        own = ids == queries[:, None]
        best = np.where(own[:, 0], ids[:, 1], ids[:, 0])
        hit: np.ndarray = (best >= 0) & (labels[unseen][best] == labels[unseen][queries])
        return hit

    return CONTRAST if find_more(hits(CONTRAST), hits(0.0)) else 0.0


def find_more(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Returns whether our (n,) hits exceed theirs by more than a standard error of the mean."""
    gain = ours.astype(np.float64) - theirs
    return bool(gain.mean() > gain.std() / np.sqrt(len(gain)))
