"""Metric losses, activation regularizers, schedules of their weight, and sparsity metrics.

Where Keras was imported before, importing this package registers all of its classes with it, so
that `keras.models.load_model` finds them without `custom_objects`; else using any of them does.
`sparse_embed.losses.population` holds the closed forms for rectified Gaussians; it needs SciPy
alone.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from sparse_embed.common.extras import require
from sparse_embed.losses import population
from sparse_embed.losses.tables import LOSSES, REGULARIZERS, MetricLoss, Regularizer

if TYPE_CHECKING:
    from sparse_embed.losses.arcface import ArcFaceLoss, arcface
    from sparse_embed.losses.contrast import SupervisedContrastLoss, supervised_contrast
    from sparse_embed.losses.regularizers import (
        ActivationRegularization,
        DFFlopsRegularization,
        FlopsRegularization,
        L1Regularization,
        MaskedFlopsRegularization,
        l1_norm,
        relaxed_flops,
    )
    from sparse_embed.losses.schedules import QuadraticWarmup, TargetFlops, WeightPath
    from sparse_embed.losses.sdh import SDHLoss, hash_distances, optimal_codes, sdh_triplet
    from sparse_embed.losses.sparsity_metrics import SparsityMetrics, SparsityMonitor
    from sparse_embed.losses.triplet import TripletSemiHardLoss, triplet_semi_hard

__all__ = [
    "LOSSES",
    "REGULARIZERS",
    "ActivationRegularization",
    "ArcFaceLoss",
    "DFFlopsRegularization",
    "FlopsRegularization",
    "L1Regularization",
    "MaskedFlopsRegularization",
    "MetricLoss",
    "QuadraticWarmup",
    "Regularizer",
    "SDHLoss",
    "SparsityMetrics",
    "SparsityMonitor",
    "SupervisedContrastLoss",
    "TargetFlops",
    "TripletSemiHardLoss",
    "WeightPath",
    "arcface",
    "hash_distances",
    "l1_norm",
    "optimal_codes",
    "population",
    "relaxed_flops",
    "sdh_triplet",
    "supervised_contrast",
    "triplet_semi_hard",
]

_LAYERS = ("arcface", "contrast", "regularizers", "schedules", "sdh", "sparsity_metrics")


def __getattr__(name: str) -> Any:
    """Imports Keras and TensorFlow when a name that needs them is used for the first time."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require(__name__, "train", "keras", "tensorflow")
    for module in (*_LAYERS, "triplet"):
        content = vars(importlib.import_module(f"{__name__}.{module}"))
        globals().update({key: content[key] for key in __all__ if key in content})
    return globals()[name]


if "keras" in sys.modules:
    __getattr__("relaxed_flops")
