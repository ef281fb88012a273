"""How the objective is minimised."""

import dataclasses

from absl import flags

OPTIMIZERS = ["adam", "sgd"]
LEARNING_RATE_SCHEDULES = ["constant", "cosine"]


@dataclasses.dataclass(frozen=True)
class OptimizationConfig:
    """The optimizer, its schedule and its budget."""

    optimizer: str = "adam"
    learning_rate: float = 0.001
    learning_rate_schedule: str = "cosine"
    steps: int = 1500
    batch_size: int = 256
    seed: int = 0


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
    "cosine falls from --learning_rate to 0 over --steps.",
)
flags.DEFINE_integer("steps", OptimizationConfig.steps, "Training steps.", lower_bound=1)
flags.DEFINE_integer("batch_size", OptimizationConfig.batch_size, "Images per step.", lower_bound=2)
flags.DEFINE_integer(
    "seed",
    OptimizationConfig.seed,
    "Seed of the initial weights, the data order and the augmentation.",
    lower_bound=0,
)
