"""Options of `train`."""

import dataclasses

from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.flags.train_config import LoggingConfig, TrainConfig


@dataclasses.dataclass(frozen=True)
class Options:
    """A training run: what decides it, how often it is looked at, and what it leaves."""

    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    logging: LoggingConfig = dataclasses.field(default_factory=LoggingConfig)
    model_dir: str | None = fields.model_dir()
    export: tuple[str, ...] = fields.export()


def preset_config(name: str) -> TrainConfig:
    """Returns the config of a preset, unchecked."""
    config: TrainConfig = app.parse(Options, [f"--preset={name}"]).config
    return config
