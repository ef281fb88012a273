import dataclasses
import subprocess
import sys

import pytest
from absl import flags as absl_flags
from absl.testing import flagsaver

from sparse_embed import losses, models
from sparse_embed.common.failures import UsageError
from sparse_embed.common.options import option
from sparse_embed.datasets.catalogue import DATASETS
from sparse_embed.flags import app, config, training
from sparse_embed.flags.config import from_flags
from sparse_embed.flags.train_config import (
    PARTS,
    DataConfig,
    LoggingConfig,
    ModelConfig,
    OptimizationConfig,
    TrainConfig,
)

training.define()
CONFIGS = [*training.all_configs(), LoggingConfig]
PRESETS = sorted(path.name.removesuffix(".flags") for path in app.PRESETS.glob("*.flags"))


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
    assert from_flags(ModelConfig) == ModelConfig("convnet", 64, "soft_threshold")


@pytest.mark.parametrize(
    "argument",
    [
        *("--learning_rate=nan", "--learning_rate=inf", "--margin=-inf", "--width=1e400"),
        *("--initial_probability=nan", f"--steps={2**63}", f"--seed={10**30}"),
    ],
)
def test_numbers_that_nothing_can_be_computed_with_are_refused(parsed, argument):
    """absl itself lets NaN pass all bounds, and integers of any size."""
    name, _ = argument.removeprefix("--").split("=")
    with pytest.raises(absl_flags.IllegalFlagValueError, match=name):
        parsed(argument)


def test_large_numbers_are_fine(parsed):
    parsed("--margin=1e300", f"--seed={2**63 - 1}")
    assert from_flags(OptimizationConfig).seed == 2**63 - 1


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().embedding_dim = 1


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_parse(parsed, preset):
    """Every flag of a preset ends in a config: none is misspelt, none is read by nobody."""
    expanded = list(app.expand_presets([f"--preset={preset}"]))
    parsed(*expanded)
    values = {
        field.name: getattr(found, field.name)
        for found in map(from_flags, CONFIGS)
        for field in dataclasses.fields(found)
    }
    words = dict(word.removeprefix("--").split("=", 1) for word in expanded if "=" in word)
    assert words
    for name, word in words.items():  # of several, the last
        assert values[name] == absl_flags.FLAGS[name].parser.parse(word)


def test_choices_are_those_of_the_tables(monkeypatch):
    config.check_choices(*(part() for part in PARTS))
    for name, table in (
        ("model", models.ARCHITECTURES),
        ("activation", models.ACTIVATIONS),
        ("loss", losses.LOSSES),
        ("regularizer", losses.REGULARIZERS),
        ("dataset", DATASETS),
    ):
        (part,) = [p for p in PARTS if name in {field.name for field in dataclasses.fields(p)}]
        wrong = dataclasses.replace(part(), **{name: "toy"})
        message = f"--{name}=toy: expected one of .*{', .*'.join(table)}"
        with pytest.raises(UsageError, match=message):
            config.check_choices(wrong)
        monkeypatch.setitem(table, "toy", next(iter(table.values())))
        config.check_choices(wrong)


def test_configs_define_no_flags():
    """Importing them leaves absl's flags as they were."""
    code = (
        "from absl import flags\n"
        "before = set(flags.FLAGS)\n"
        "import sparse_embed.flags.train_config, sparse_embed.datasets.catalogue\n"
        "import sparse_embed.experiments.core.run, sys\n"
        "assert set(flags.FLAGS) == before, set(flags.FLAGS) - before\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_config_survives_its_record():
    """Options of the data set are kept, and an old record without a flag gets its default."""
    written = TrainConfig(
        DataConfig("image_folder", "photos", options=DATASETS["image_folder"].options(64)),
        ModelConfig("nin", 32),
    )
    found = written.to_dict()
    assert found["data"]["image_size"] == 64
    assert TrainConfig.from_dict(found) == written
    assert written.identity["image_size"] == 64
    assert "data_dir" not in written.identity
    del found["model"]["width"], found["distribution"]
    found["data"]["a_flag_of_the_past"] = 1
    assert TrainConfig.from_dict(found) == written


@pytest.mark.parametrize(
    ("model", "objective", "method", "setting"),
    [
        ({}, {"regularizer_weight": 5.0}, "flops", {"weight": 5.0}),
        ({}, {"regularizer": "l1"}, "l1", {"weight": 30.0}),
        ({}, {"regularizer": "none"}, "sparse", {"dims": 512}),
        ({"activation": "none"}, {"regularizer": "none"}, "dense", {"dims": 512}),
        (
            {"activation": "none"},
            {"regularizer": "none", "loss": "sdh", "active_bits": 2},
            "sdh",
            {"active_bits": 2},
        ),
    ],
)
def test_method_and_setting(model, objective, method, setting):
    found = TrainConfig.from_dict({"model": model, "objective": objective})
    assert (found.method, found.setting) == (method, setting)
    assert found.is_sparse == (not model)


def test_two_configs_may_share_a_flag_if_they_say_the_same():
    @dataclasses.dataclass(frozen=True)
    class Same:
        batch_size: int = option(256, "Examples per step and replica, as in the paper.", lower=2)

    @dataclasses.dataclass(frozen=True)
    class Other:
        batch_size: int = option(1, "Something else.")

    config.define(Same)
    with pytest.raises(ValueError, match="--batch_size: two configs define it differently"):
        config.define(Other)


def test_every_flag_but_where_the_data_are_belongs_to_the_experiment():
    data = DataConfig("image_folder")
    classes = [*PARTS, type(data.options)]
    names = {field.name for kind in classes for field in config.option_fields(kind)}
    assert TrainConfig(data).identity.keys() == names - {"data_dir", "on_error"}
