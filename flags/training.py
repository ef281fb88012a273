"""The flags of `train`, and of all scripts that train."""

import dataclasses

from absl import flags

from sparse_embed.datasets.catalogue import DATASETS
from sparse_embed.flags import app, config
from sparse_embed.flags.config import from_flags
from sparse_embed.flags.train_config import PARTS, DataConfig, LoggingConfig, TrainConfig


def all_configs() -> list[type]:
    """Returns the configs whose fields are flags: the parts, and each data set's own options."""
    return [*PARTS, *(kind.options for kind in DATASETS.values())]


def define() -> None:
    """Defines the flags of a training run: those that decide it, and how often it is looked at."""
    config.define(*all_configs(), LoggingConfig)


def train_config() -> TrainConfig:
    """Returns what the flags say, unchecked."""
    data = from_flags(DataConfig)
    if data.dataset in DATASETS:
        data = from_flags(DataConfig, options=from_flags(DATASETS[data.dataset].options))
    return TrainConfig(data, *(from_flags(part) for part in PARTS[1:]))


def preset_config(name: str) -> TrainConfig:
    """Returns the config of a preset, unchecked, whatever flags the script was given."""
    words = app.expand_presets([f"--preset={name}"])
    pairs = [word.removeprefix("--").split("=", 1) for word in words]
    values = {flag: flags.FLAGS[flag].parser.parse(text) for flag, text in pairs}
    return TrainConfig.from_dict({part.name: values for part in dataclasses.fields(TrainConfig)})
