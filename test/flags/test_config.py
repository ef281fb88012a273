import dataclasses
import pathlib

import pytest
from absl import flags as absl_flags
from absl.testing import flagsaver

from sparse_embed import flags, models
from sparse_embed.datasets import catalogue
from sparse_embed.flags import data, distribution, logging, model, objective, optimization
from sparse_embed.flags.config import from_flags

CONFIGS = [
    data.DataConfig,
    model.ModelConfig,
    objective.ObjectiveConfig,
    optimization.OptimizationConfig,
    distribution.DistributionConfig,
    logging.LoggingConfig,
]
PRESETS = sorted((pathlib.Path(flags.__file__).parent / "presets").glob("*.flags"))


@pytest.fixture
def parsed():
    """Parses flags as a script does; what they were before comes back afterwards."""
    with flagsaver.flagsaver():
        yield lambda *arguments: absl_flags.FLAGS(["script", *arguments])


@pytest.mark.parametrize("config_class", CONFIGS)
def test_flags_without_values_give_the_defaults(parsed, config_class):
    parsed()
    assert from_flags(config_class) == config_class()


def test_flags_end_in_the_field_of_the_same_name(parsed):
    parsed("--embedding_dim=64", "--activation=soft_threshold")
    assert from_flags(model.ModelConfig) == model.ModelConfig("convnet", 64, "soft_threshold")


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.ModelConfig().embedding_dim = 1


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_presets_parse(parsed, preset):
    """Every flag of a preset ends in a config: none is misspelt, none is read by nobody."""
    parsed(f"--flagfile={preset}")
    values = {
        field.name: getattr(config, field.name)
        for config in map(from_flags, CONFIGS)
        for field in dataclasses.fields(config)
    }
    lines = [line for line in preset.read_text().splitlines() if line.startswith("--")]
    words = dict(line.removeprefix("--").split("=", 1) for line in lines if "=" in line)
    assert words
    for name, word in words.items():
        if name not in ("flagfile", "preset"):
            assert values[name] == absl_flags.FLAGS[name].parser.parse(word)


def test_choices_are_those_of_the_library():
    assert set(model.MODELS) == set(models.ARCHITECTURES)
    assert set(model.ACTIVATIONS) == set(models.ACTIVATIONS)
    assert set(data.DATASETS) == set(catalogue.NAMES)
