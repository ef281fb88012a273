"""Metric losses, activation regularizers, schedules of their weight, and sparsity metrics.

Importing this package registers all of its classes with Keras, so that `keras.models.load_model`
finds them without `custom_objects`. `sparse_embed.losses.population` holds the closed forms for
rectified Gaussians; it needs SciPy only.
"""

from sparse_embed.common.extras import require

require(__name__, "train", "keras", "tensorflow")

from sparse_embed.losses import population
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
from sparse_embed.losses.tables import LOSSES, REGULARIZERS, MetricLoss, Regularizer
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
