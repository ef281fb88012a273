"""The tables behind `--regularizer` and `--loss`: one row each, found by name everywhere."""

from typing import NamedTuple

from sparse_embed.common.looks import Look
from sparse_embed.losses.arcface import ArcFaceLoss
from sparse_embed.losses.regularizers import (
    DFFlopsRegularization,
    FlopsRegularization,
    L1Regularization,
    MaskedFlopsRegularization,
)
from sparse_embed.losses.sdh import SDHLoss
from sparse_embed.losses.triplet import TripletSemiHardLoss


class Regularizer(NamedTuple):
    """A sparsity penalty.

    Attributes:
        layer: subclass of `ActivationRegularization`, made with (weight, scope=...); an argument
            named like a flag gets the flag's value.
        look: how its embeddings are shown in figures.
    """

    layer: type
    look: Look


class MetricLoss(NamedTuple):
    """A metric loss.

    Attributes:
        loss: class of the loss; an argument named like a flag gets the flag's value.
        takes: "embeddings", or "cosines" between them and the classes, see `models.ArcFaceHead`.
        compilable: whether XLA can compile it.
    """

    loss: type
    takes: str = "embeddings"
    compilable: bool = True


REGULARIZERS = {
    "flops": Regularizer(FlopsRegularization, Look("relaxed FLOPs (ours)", "#0072B2", "o")),
    "l1": Regularizer(L1Regularization, Look("l1", "#D55E00", "s")),
    "df_flops": Regularizer(DFFlopsRegularization, Look("DF-FLOPS", "#009E73", "^")),
    "masked_flops": Regularizer(MaskedFlopsRegularization, Look("l0 mask", "#CC79A7", "v")),
}
LOSSES = {
    "arcface": MetricLoss(ArcFaceLoss, takes="cosines"),
    "sdh": MetricLoss(SDHLoss, compilable=False),  # its solver runs on the host
    "triplet": MetricLoss(TripletSemiHardLoss),
}
