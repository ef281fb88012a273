"""How the objective is minimised."""

import dataclasses

from absl import flags

OPTIMIZERS = ["adam", "sgd"]
LEARNING_RATE_SCHEDULES = ["constant", "cosine", "step"]


@dataclasses.dataclass(frozen=True)
class OptimizationConfig:
    """The optimizer, its schedule and its budget."""

    optimizer: str = "adam"
    learning_rate: float = 0.001
    learning_rate_schedule: str = "cosine"
    weight_decay: float = 0.0
    decay_steps: int = 0
    steps: int = 1500
    path_steps: int | None = None
    batch_size: int = 256
    examples_per_class: int = 1
    seed: int = 0
    xla: bool | None = None


flags.DEFINE_enum(
    "optimizer",
    OptimizationConfig.optimizer,
    OPTIMIZERS,
    "adam, or sgd with momentum 0.9 as in the paper.",
)
flags.DEFINE_float(
    "learning_rate",
    OptimizationConfig.learning_rate,
    "Highest learning rate.",
    lower_bound=1e-12,
)
flags.DEFINE_enum(
    "learning_rate_schedule",
    OptimizationConfig.learning_rate_schedule,
    LEARNING_RATE_SCHEDULES,
    "cosine falls from --learning_rate to 0 over --steps; step is divided by 10 at --decay_steps.",
)
flags.DEFINE_float(
    "weight_decay",
    OptimizationConfig.weight_decay,
    "Decoupled weight decay: each step takes learning rate x this fraction off every weight.",
    lower_bound=0.0,
)
flags.DEFINE_integer(
    "decay_steps",
    OptimizationConfig.decay_steps,
    "Step at which the learning rate is divided by 10, with --learning_rate_schedule=step.",
    lower_bound=0,
)
flags.DEFINE_integer("steps", OptimizationConfig.steps, "Training steps.", lower_bound=1)
flags.DEFINE_integer(
    "path_steps",
    OptimizationConfig.path_steps,
    "Steps of each stage of --reg_path after the first; default: a quarter of --steps. The cosine "
    "schedule starts again in each.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "batch_size",
    OptimizationConfig.batch_size,
    "Examples per step and replica, as in the paper.",
    lower_bound=2,
)
flags.DEFINE_integer(
    "examples_per_class",
    OptimizationConfig.examples_per_class,
    "How many examples of one class come together in a batch, for losses that compare examples; "
    "with 1 all are drawn at random.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "seed",
    OptimizationConfig.seed,
    "Seed of the initial weights, the data order and the augmentation.",
    lower_bound=0,
)
flags.DEFINE_bool(
    "xla",
    OptimizationConfig.xla,
    "Compile the training step with XLA, on one device: faster for some networks and slower for "
    "others, and it costs some seconds at the start. Default: Keras decides, which does so on a "
    "GPU.",
)
