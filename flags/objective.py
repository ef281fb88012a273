"""The objective: metric loss plus lambda(t) times a sparsity penalty."""

import dataclasses

from absl import flags

from sparse_embed.common.checks import check_number

LOSSES = ["arcface", "sdh", "triplet"]
REGULARIZERS = ["none", "flops", "l1"]
SCOPES = ["global", "replica"]


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """The objective."""

    loss: str = "arcface"
    margin: float = 0.5
    scale: float = 64.0
    active_bits: int = 3
    pairwise_cost: float = 0.1
    regularizer: str = "flops"
    regularizer_weight: float = 30.0
    regularizer_scope: str = "global"
    warmup_steps: int = 500
    reg_path: str | None = None

    @property
    def weights(self) -> list[float]:
        """Lambda of each stage of the training: one stage without --reg_path."""
        if self.reg_path is None:
            return [self.regularizer_weight]
        return parse_path(self.reg_path)


def parse_path(text: str) -> list[float]:
    """Returns the weights in "10,20,40"; ValueError unless they are positive and increasing."""
    weights = [check_number("reg_path", float(word), above=0) for word in text.split(",")]
    if weights != sorted(set(weights)):
        raise ValueError(f"reg_path={text}: expected increasing weights")
    return weights


def _is_path(text: str | None) -> bool:
    try:
        return text is None or bool(parse_path(text))
    except ValueError:
        return False


flags.DEFINE_enum(
    "loss",
    ObjectiveConfig.loss,
    LOSSES,
    "Metric loss; triplet mines semi-hard negatives; sdh is Sparse Deep Hashing, a triplet loss on "
    "the active bits of each batch's optimal hash codes.",
)
flags.DEFINE_float(
    "margin",
    ObjectiveConfig.margin,
    "Margin m: an angle in radians for arcface, a squared distance for triplet, an L1 distance for "
    "sdh.",
    lower_bound=0.0,
)
flags.DEFINE_float("scale", ObjectiveConfig.scale, "Scale s of arcface.", lower_bound=1e-6)
flags.DEFINE_integer(
    "active_bits",
    ObjectiveConfig.active_bits,
    "Active bits k of a hash code, with --loss=sdh.",
    lower_bound=1,
)
flags.DEFINE_float(
    "pairwise_cost",
    ObjectiveConfig.pairwise_cost,
    "What each bit costs that two classes share, with --loss=sdh.",
    lower_bound=0.0,
)
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
flags.DEFINE_string(
    "reg_path",
    ObjectiveConfig.reg_path,
    "Increasing weights, such as 10,20,40,80, in place of --regularizer_weight: one training that "
    "goes on under the next weight and keeps the encoder of each in <model_dir>/path/lambda_*. The "
    "first stage lasts --steps, as an independent run, the others --path_steps.",
)
flags.register_validator(
    "reg_path", _is_path, message="expected increasing positive weights, such as 10,20,40"
)
