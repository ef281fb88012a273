"""Sparse codes for dense embeddings that one has already: `Sparsifier`."""

from sparse_embed.common.extras import require

require(__name__, "train", "keras", "tensorflow")

from sparse_embed.sparsify.sparsifier import Sparsifier

__all__ = ["Sparsifier"]
