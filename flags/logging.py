"""How often a training run looks at itself. None of this changes what it learns."""

import dataclasses

from absl import flags


@dataclasses.dataclass(frozen=True)
class LoggingConfig:
    """Intervals, in steps."""

    summary_every: int = 100
    evaluate_every: int = 500
    checkpoint_every: int = 500
    rerank_model_dir: str | None = None


flags.DEFINE_integer(
    "summary_every",
    LoggingConfig.summary_every,
    "Steps between two points of the curves (TensorBoard and the record).",
    lower_bound=1,
)
flags.DEFINE_integer(
    "evaluate_every",
    LoggingConfig.evaluate_every,
    "Steps between two evaluations on the validation classes; a multiple of --summary_every.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "checkpoint_every",
    LoggingConfig.checkpoint_every,
    "Steps between two checkpoints; a multiple of --summary_every.",
    lower_bound=1,
)
flags.DEFINE_string(
    "rerank_model_dir",
    LoggingConfig.rerank_model_dir,
    "Folder of a dense run; the evaluation then also re-ranks with its embeddings.",
)
