"""The settings of a training run, from the flags to the record.

Importing this module defines no flags: `flags.config` makes one from each field.
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from sparse_embed.common.checks import check_number
from sparse_embed.common.options import option
from sparse_embed.datasets.catalogue import DATASETS


# Functions, because these tables import Keras.
def _models() -> Iterable[str]:
    from sparse_embed.models import ARCHITECTURES

    return ARCHITECTURES


def _activations() -> Iterable[str]:
    from sparse_embed.models import ACTIVATIONS

    return ACTIVATIONS


def _losses() -> Iterable[str]:
    from sparse_embed.losses import LOSSES

    return LOSSES


def _regularizers() -> Iterable[str]:
    from sparse_embed.losses import REGULARIZERS

    return ["none", *REGULARIZERS]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which data set, where it is, and which classes are kept for evaluation.

    Attributes:
        options: the data set's own options, of the type given in `DATASETS`. Their fields are flags
            and entries of the record like all others.
    """

    dataset: str = option(
        "glyphs",
        "; ".join(f"{name}: {kind.help}" for name, kind in DATASETS.items()) + ".",
        choices=lambda: DATASETS,
    )
    data_dir: str | None = option(
        None,
        "Folder or file of the data set; for glyphs and words, the cache of rendered glyphs "
        "(default: the user's cache folder).",
    )
    validation: int = option(
        0,
        "Classes held out for evaluation during training (for cifar100, images per class). With 0 "
        "here and in --test, glyphs hold out 200 and 1,134, words 500 and 1,000.",
        lower=0,
    )
    test: int = option(
        0,
        "Classes held out for the final evaluation (cifar100 has its own test images).",
        lower=0,
    )
    split_seed: int = option(0, "Seed that decides which classes go where.", lower=0)
    options: Any = dataclasses.field(default=None, metadata={"of": DATASETS, "by": "dataset"})

    def __post_init__(self) -> None:
        if self.options is None and self.dataset in DATASETS:
            object.__setattr__(self, "options", DATASETS[self.dataset].options())


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The encoder: architecture, embedding dimension, activation, first weights."""

    model: str = option(
        "convnet",
        "Architecture: mobilefacenet and resnet101 for faces of 112x112, nin, resnet20 and haarnet "
        "for CIFAR, convnet and resnet8 for glyphs and words, linear for dense embeddings.",
        choices=_models,
    )
    embedding_dim: int = option(
        512,
        "Dimension d of the embedding. Keep it below the number of training classes: otherwise a "
        "sparse model can collapse to one dimension per class (section 4 of the paper).",
        lower=1,
    )
    activation: str = option(
        "relu",
        "Non-linearity of the embedding layer; relu and soft_threshold can be sparse, none is "
        "dense.",
        choices=_activations,
    )
    width: float = option(1.0, "Factor for the numbers of channels.", lower=0.01)
    initial_probability: float | None = option(
        None,
        "Probability that a dimension is active before training. With a low one, a short training "
        "run gets sparse sooner. Default: that of a batch norm with bias 0 and scale 1 (0.5 for "
        "relu).",
        lower=1e-4,
        upper=0.9999,
    )
    warm_start: str | None = option(
        None,
        "Earlier run whose encoder gives the first weights: its folder, or a .keras file of the "
        "same --model. They take the place of --initial_probability.",
    )
    warm_start_head: bool = option(
        True,
        "Whether --warm_start takes over the embedding layer too; without it that layer starts "
        "afresh, and --embedding_dim may differ.",
    )
    train_backbone: bool = option(
        True,
        "Whether all layers learn. --notrain_backbone trains the embedding layer alone, on the "
        "other layers of --warm_start, which stay as they are; a step then takes a fraction of "
        "the time.",
    )
    train_keep: int | None = option(
        None,
        "Train for a budget of this many values: each embedding is cut to its largest ones before "
        "the penalty and the metric loss. At first four times as many stay; their number falls "
        "linearly during --warmup_steps. The saved encoder is not cut: embed --keep and "
        "evaluate_megaface --keep do that. Default: nothing is cut.",
        lower=1,
    )


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """The objective: metric loss plus lambda(t) times a sparsity penalty."""

    loss: str = option(
        "arcface",
        "Metric loss; triplet mines semi-hard negatives; sdh is Sparse Deep Hashing, a triplet "
        "loss on the active bits of each batch's optimal hash codes.",
        choices=_losses,
    )
    margin: float = option(
        0.5,
        "Margin m: an angle in radians for arcface, a squared distance for triplet, an L1 distance "
        "for sdh.",
        lower=0.0,
    )
    scale: float = option(64.0, "Scale s of arcface.", lower=1e-6)
    active_bits: int = option(3, "Active bits k of a hash code, with --loss=sdh.", lower=1)
    pairwise_cost: float = option(
        0.1, "Cost of each bit that two classes share, with --loss=sdh.", lower=0.0
    )
    regularizer: str = option(
        "flops",
        "Sparsity penalty: flops is the paper's relaxed FLOPs, l1 its baseline, df_flops weights "
        "dimensions by how often they are active, masked_flops spares rows that are sparse enough, "
        "none leaves it out.",
        choices=_regularizers,
    )
    regularizer_weight: float = option(
        30.0,
        "Final weight lambda of the penalty; with --target_flops, where the search for it begins.",
        lower=0.0,
    )
    target_flops: float | None = option(
        None,
        "Wanted FLOPs per row, in place of a final weight: lambda adapts while training until the "
        "embeddings cost this many multiply-adds per row, whatever the penalty.",
        lower=1e-6,
    )
    df_cutoff: float = option(
        0.1,
        "Share of examples at which a dimension counts half, with --regularizer=df_flops.",
        lower=1e-6,
        upper=0.999999,
    )
    df_steepness: float = option(
        10.0, "How steeply the weight of a dimension rises there.", lower=1e-6
    )
    l0_mask: int = option(
        16,
        "Rows with no more non-zeros are not penalised, with --regularizer=masked_flops.",
        lower=0,
    )
    regularizer_scope: str = option(
        "global",
        "Batch over which to take the mean activation when several devices train together.",
        choices=["global", "replica"],
    )
    warmup_steps: int = option(
        500, "T of the quadratic warm-up: lambda(t) = lambda * min(1, t/T)^2.", lower=1
    )
    reg_path: str | None = option(
        None,
        "Increasing weights, such as 10,20,40,80, in place of --regularizer_weight: one training "
        "run goes through the weights and keeps the encoder of each in <model_dir>/path/lambda_*. "
        "The first stage lasts --steps, like an independent run, the others --path_steps.",
    )

    @property
    def weights(self) -> list[float]:
        """Lambda of each stage of the run: one stage without --reg_path.

        Raises:
            ValueError: `reg_path` is not positive, increasing numbers.
        """
        if self.reg_path is None:
            return [self.regularizer_weight]
        words = self.reg_path.split(",")
        weights = [check_number("reg_path", float(word), above=0) for word in words]
        if weights != sorted(set(weights)):
            raise ValueError(f"reg_path={self.reg_path}: expected increasing weights")
        return weights


@dataclasses.dataclass(frozen=True)
class OptimizationConfig:
    """How the objective is minimised: the optimizer, its schedule and its budget."""

    optimizer: str = option(
        "adam", "adam, or sgd with momentum 0.9 as in the paper.", choices=["adam", "sgd"]
    )
    learning_rate: float = option(0.001, "Highest learning rate.", lower=1e-12)
    learning_rate_schedule: str = option(
        "cosine",
        "cosine falls from --learning_rate to 0 over --steps; step divides it by 10 at "
        "--decay_steps.",
        choices=["constant", "cosine", "step"],
    )
    weight_decay: float = option(
        0.0,
        "Decoupled weight decay: each step reduces every weight by learning rate x this fraction.",
        lower=0.0,
    )
    decay_steps: int = option(
        0,
        "Step at which the learning rate is divided by 10, with --learning_rate_schedule=step.",
        lower=0,
    )
    steps: int = option(1500, "Training steps.", lower=1)
    path_steps: int | None = option(
        None,
        "Steps of each stage of --reg_path after the first; default: a quarter of --steps. The "
        "cosine schedule starts again in each.",
        lower=1,
    )
    batch_size: int = option(256, "Examples per step and replica, as in the paper.", lower=2)
    examples_per_class: int = option(
        1,
        "How many examples of one class come together in a batch, for losses that compare "
        "examples; with 1 all are drawn at random.",
        lower=1,
    )
    seed: int = option(
        0, "Seed of the initial weights, the data order and the augmentation.", lower=0
    )
    xla: bool | None = option(
        None,
        "Compile the training step with XLA, on one device: faster for some networks and slower "
        "for others, and it costs some seconds at the start. Default: Keras decides, and does so "
        "on a GPU.",
    )


@dataclasses.dataclass(frozen=True)
class DistributionConfig:
    """The devices that a run trains on, and its precision."""

    strategy: str = option(
        "auto",
        "auto mirrors over all GPUs if there are several; mirrored uses every GPU, or every "
        "logical CPU; multi_worker is one process per machine, described by TF_CONFIG.",
        choices=["auto", "one_device", "mirrored", "multi_worker"],
    )
    logical_cpus: int = option(
        1, "Devices to split the CPU into, to try --strategy=mirrored without GPUs.", lower=1
    )
    precision: str = option(
        "float32",
        "Keras dtype policy of the backbone; losses and penalties stay in float32.",
        choices=["float32", "mixed_bfloat16", "mixed_float16"],
    )
    deterministic: bool = option(
        False,
        "Only deterministic operations: the same flags give the same weights, somewhat slower.",
    )


@dataclasses.dataclass(frozen=True)
class LoggingConfig:
    """How often a run is evaluated and saved, in steps. None of this changes what it learns."""

    summary_every: int = option(
        100, "Steps between two points of the curves (TensorBoard and the record).", lower=1
    )
    evaluate_every: int = option(
        500,
        "Steps between two evaluations on the validation classes; a multiple of --summary_every.",
        lower=1,
    )
    checkpoint_every: int = option(
        500, "Steps between two checkpoints; a multiple of --summary_every.", lower=1
    )
    rerank_model_dir: str | None = option(
        None, "Folder of a dense run; the evaluation then also re-ranks with its embeddings."
    )


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """All settings that decide the result of a training run."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    objective: ObjectiveConfig = dataclasses.field(default_factory=ObjectiveConfig)
    optimization: OptimizationConfig = dataclasses.field(default_factory=OptimizationConfig)
    distribution: DistributionConfig = dataclasses.field(default_factory=DistributionConfig)

    @property
    def ends(self) -> list[int]:
        """Step at which each stage of the run ends: one stage without --reg_path."""
        steps = self.optimization.steps
        more = self.optimization.path_steps or max(1, steps // 4)
        return [steps + stage * more for stage in range(len(self.objective.weights))]

    @property
    def is_sparse(self) -> bool:
        """Whether the embeddings have exact zeros."""
        return self.model.activation != "none"

    @property
    def makes_codes(self) -> bool:
        """Whether search uses hash codes, those of Sparse Deep Hashing."""
        return self.objective.loss == "sdh"

    @property
    def method(self) -> str:
        """Name of the method in records: "sdh", the regularizer's name, "sparse" or "dense"."""
        if self.makes_codes:
            return "sdh"
        if self.objective.regularizer != "none":
            return self.objective.regularizer
        return "sparse" if self.is_sparse else "dense"

    @property
    def setting(self) -> dict[str, Any]:
        """The setting that tells apart the points of the method's curve in records."""
        if self.makes_codes:
            return {"active_bits": self.objective.active_bits}
        if self.objective.target_flops is not None:
            return {"target_flops": self.objective.target_flops}
        if self.objective.regularizer != "none":
            return {"weight": self.objective.regularizer_weight}
        return {"dims": self.model.embedding_dim}

    @property
    def identity(self) -> dict[str, Any]:
        """All flags that define the experiment, by name.

        Without the location of the data, which may move, and without --on_error: a run that a
        broken image has ended can go on without that image.
        """
        flags = {name: value for part in self.to_dict().values() for name, value in part.items()}
        return {name: flags[name] for name in flags if name not in ("data_dir", "on_error")}

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Returns part -> flag -> value, for JSON; the data set's options are among `data`."""
        parts = dataclasses.asdict(self)
        options = parts["data"].pop("options") or {}
        return {**parts, "data": {**parts["data"], **options}}

    @classmethod
    def from_dict(cls, content: Mapping[str, Mapping[str, Any]]) -> "TrainConfig":
        """Returns the config that `to_dict` wrote; missing flags get their defaults."""
        if not isinstance(content, Mapping):
            raise TypeError(f"a config is a mapping, not {type(content).__name__}")
        parts = {
            field.name: fill(field.type, content.get(field.name, {}))  # type: ignore[arg-type]
            for field in dataclasses.fields(cls)
        }
        kind = DATASETS.get(parts["data"].dataset)
        if kind is not None:
            options = fill(kind.options, content.get("data", {}))
            parts["data"] = dataclasses.replace(parts["data"], options=options)
        return cls(**parts)


def fill(config_class: type, values: Mapping[str, Any]) -> Any:
    """Returns `config_class` with the values that it has fields for.

    Raises:
        TypeError: a value is not of its field's type.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{config_class.__name__} is a mapping, not {type(values).__name__}")
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    known = {name: values[name] for name in fields if name in values and name != "options"}
    for name, value in known.items():
        kinds = typing.get_args(fields[name].type) or (fields[name].type,)
        is_number = float in kinds and type(value) is int  # as JSON may have it
        if type(value) not in kinds and not is_number:
            raise TypeError(f"{name} is {value!r}, of {type(value).__name__}")
    return config_class(**known)


PARTS: list[type] = [field.type for field in dataclasses.fields(TrainConfig)]  # type: ignore[misc]
