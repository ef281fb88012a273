"""On which devices, and how exactly, a training runs."""

import dataclasses

from absl import flags

STRATEGIES = ["auto", "one_device", "mirrored", "multi_worker"]
PRECISIONS = ["float32", "mixed_bfloat16", "mixed_float16"]


@dataclasses.dataclass(frozen=True)
class DistributionConfig:
    """Devices and arithmetic."""

    strategy: str = "auto"
    logical_cpus: int = 1
    precision: str = "float32"
    deterministic: bool = False


flags.DEFINE_enum(
    "strategy",
    DistributionConfig.strategy,
    STRATEGIES,
    "auto mirrors over all GPUs if there are several; mirrored uses every GPU, or every logical "
    "CPU; multi_worker is one process per machine, described by TF_CONFIG.",
)
flags.DEFINE_integer(
    "logical_cpus",
    DistributionConfig.logical_cpus,
    "Splits the CPU into so many devices, to try --strategy=mirrored without GPUs.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "precision",
    DistributionConfig.precision,
    PRECISIONS,
    "Keras dtype policy of the backbone; losses and penalties stay in float32.",
)
flags.DEFINE_bool(
    "deterministic",
    DistributionConfig.deterministic,
    "Only deterministic operations: the same flags give the same weights, somewhat slower.",
)
