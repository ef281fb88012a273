"""Metric losses, activation regularizers and their schedules.

Importing this package registers all of its classes with Keras, so that `keras.models.load_model`
finds them without `custom_objects`.
"""

from sparse_embed.losses.arcface import ArcFaceLoss, arcface
from sparse_embed.losses.regularizers import (
    FlopsRegularization,
    L1Regularization,
    l1_norm,
    relaxed_flops,
)
from sparse_embed.losses.schedules import QuadraticWarmup

__all__ = [
    "ArcFaceLoss",
    "FlopsRegularization",
    "L1Regularization",
    "QuadraticWarmup",
    "arcface",
    "l1_norm",
    "relaxed_flops",
]
