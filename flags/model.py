"""The encoder: architecture, embedding dimension, activation."""

import dataclasses

from absl import flags

MODELS = ["convnet", "haarnet", "linear", "mobilefacenet", "nin", "resnet101", "resnet20"]
ACTIVATIONS = ["none", "relu", "soft_threshold"]


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The encoder."""

    model: str = "convnet"
    embedding_dim: int = 512
    activation: str = "relu"
    width: float = 1.0
    initial_probability: float | None = None
    warm_start: str | None = None
    warm_start_head: bool = True
    train_backbone: bool = True


flags.DEFINE_enum(
    "model",
    ModelConfig.model,
    MODELS,
    "Architecture: mobilefacenet and resnet101 for faces of 112x112, nin, resnet20 and haarnet "
    "for CIFAR, convnet for glyphs, linear for dense embeddings.",
)
flags.DEFINE_integer(
    "embedding_dim",
    ModelConfig.embedding_dim,
    "Dimension d of the embedding. Keep it below the number of training classes: otherwise a "
    "sparse model can collapse to one dimension per class (section 4 of the paper).",
    lower_bound=1,
)
flags.DEFINE_enum(
    "activation",
    ModelConfig.activation,
    ACTIVATIONS,
    "Non-linearity of the embedding layer; relu and soft_threshold can be sparse, none is dense.",
)
flags.DEFINE_float(
    "width", ModelConfig.width, "Multiplier of the numbers of channels.", lower_bound=0.01
)
flags.DEFINE_float(
    "initial_probability",
    ModelConfig.initial_probability,
    "Probability that a dimension is active before training. A short training gets sparse sooner "
    "from a low one; default: that of a batch norm with bias 0 and scale 1 (0.5 for relu).",
    lower_bound=1e-4,
    upper_bound=0.9999,
)
flags.DEFINE_string(
    "warm_start",
    ModelConfig.warm_start,
    "Earlier run whose encoder gives the first weights: its folder, or a .keras file of the same "
    "--model. They take the place of --initial_probability.",
)
flags.DEFINE_bool(
    "warm_start_head",
    ModelConfig.warm_start_head,
    "Whether --warm_start takes over the embedding layer too; without it that layer starts afresh, "
    "and --embedding_dim may be another.",
)
flags.DEFINE_bool(
    "train_backbone",
    ModelConfig.train_backbone,
    "Whether all layers learn. --notrain_backbone trains the embedding layer alone, on the other "
    "layers of --warm_start, which stay as they are; a step then takes a fraction of the time.",
)
