"""The objective: metric loss plus lambda(t) times a sparsity penalty."""

import dataclasses

from absl import flags

LOSSES = ["arcface", "triplet"]
REGULARIZERS = ["none", "flops", "l1"]
SCOPES = ["global", "replica"]


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """The objective."""

    loss: str = "arcface"
    margin: float = 0.5
    scale: float = 64.0
    regularizer: str = "flops"
    regularizer_weight: float = 30.0
    regularizer_scope: str = "global"
    warmup_steps: int = 500


flags.DEFINE_enum(
    "loss", ObjectiveConfig.loss, LOSSES, "Metric loss; triplet mines semi-hard negatives."
)
flags.DEFINE_float(
    "margin",
    ObjectiveConfig.margin,
    "Margin m: an angle in radians for arcface, a squared distance for triplet.",
    lower_bound=0.0,
)
flags.DEFINE_float("scale", ObjectiveConfig.scale, "Scale s of arcface.", lower_bound=1e-6)
flags.DEFINE_enum(
    "regularizer",
    ObjectiveConfig.regularizer,
    REGULARIZERS,
    "Sparsity penalty: flops is the paper's relaxed FLOPs, l1 its baseline, none leaves it out.",
)
flags.DEFINE_float(
    "regularizer_weight",
    ObjectiveConfig.regularizer_weight,
    "Final weight lambda of the penalty.",
    lower_bound=0.0,
)
flags.DEFINE_enum(
    "regularizer_scope",
    ObjectiveConfig.regularizer_scope,
    SCOPES,
    "Over which batch the mean activation is taken when several devices train together.",
)
flags.DEFINE_integer(
    "warmup_steps",
    ObjectiveConfig.warmup_steps,
    "T of the quadratic warm-up: lambda(t) = lambda * min(1, t/T)^2.",
    lower_bound=1,
)
