"""Keras encoders that return unit-norm embeddings, and the layers around them."""

from sparse_embed.common.extras import require

require(__name__, "train", "keras")

from sparse_embed.models.encoder import ARCHITECTURES, Architecture, build_encoder
from sparse_embed.models.head import (
    ACTIVATIONS,
    ArcFaceHead,
    KeepLargest,
    SoftThreshold,
    embedding_head,
    l2_normalize,
)

__all__ = [
    "ACTIVATIONS",
    "ARCHITECTURES",
    "ArcFaceHead",
    "Architecture",
    "KeepLargest",
    "SoftThreshold",
    "build_encoder",
    "embedding_head",
    "l2_normalize",
]
