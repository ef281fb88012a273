import dataclasses
import re
import subprocess
import sys

import pytest
from absl import flags as absl_flags

from sparse_embed import losses, models
from sparse_embed.common.failures import UsageError
from sparse_embed.common.options import option
from sparse_embed.datasets.catalogue import DATASETS
from sparse_embed.flags import app, config
from sparse_embed.flags.options import (
    embed,
    evaluate,
    export,
    prepare_data,
    report,
    reproduce,
    search,
    serve,
    sparsify,
)
from sparse_embed.flags.options.train import Options
from sparse_embed.flags.train_config import (
    PARTS,
    DataConfig,
    LoggingConfig,
    ModelConfig,
    OptimizationConfig,
    TrainConfig,
)

CONFIGS = [*PARTS, *(kind.options for kind in DATASETS.values()), LoggingConfig]
PRESETS = sorted(path.name.removesuffix(".flags") for path in app.PRESETS.glob("*.flags"))


MODULES = (embed, evaluate, export, prepare_data, report, reproduce, search, serve, sparsify)
OPTIONS = [
    kind
    for module in (
        embed,
        evaluate,
        export,
        prepare_data,
        report,
        reproduce,
        search,
        serve,
        sparsify,
    )
    for kind in vars(module).values()
    if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
]


@pytest.mark.parametrize("config_class", CONFIGS)
def test_flags_without_values_give_the_defaults(config_class):
    assert app.parse(config_class, []) == config_class()


def test_flags_end_in_the_field_of_the_same_name():
    words = ["--embedding_dim=64", "--activation=soft_threshold"]
    assert app.parse(ModelConfig, words) == ModelConfig("convnet", 64, "soft_threshold")
    assert app.parse(Options, words).config.model == ModelConfig("convnet", 64, "soft_threshold")


@pytest.mark.parametrize(
    "argument",
    [
        *("--learning_rate=nan", "--learning_rate=inf", "--margin=-inf", "--width=1e400"),
        *("--initial_probability=nan", f"--steps={2**63}", f"--seed={10**30}"),
    ],
)
def test_numbers_that_nothing_can_be_computed_with_are_refused(argument):
    """absl itself lets NaN pass all bounds, and integers of any size."""
    name, _ = argument.removeprefix("--").split("=")
    with pytest.raises(UsageError, match=name):
        app.parse(Options, [argument])


def test_large_numbers_are_fine():
    found = app.parse(Options, ["--margin=1e300", f"--seed={2**63 - 1}"])
    assert found.config.optimization.seed == 2**63 - 1


def test_a_data_set_brings_its_own_options():
    found = app.parse(Options, ["--dataset=image_folder", "--image_size=64"]).config.data
    assert found.options == DATASETS["image_folder"].options(64)
    assert app.parse(Options, ["--dataset=imagenet"]).config.data.options is None  # `check` tells


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_options_of_all_scripts_have_defaults_that_their_flags_give(options):
    assert app.parse(options, []) == options()


def test_the_kind_of_a_thing_is_chosen_by_its_flag_or_by_one_that_it_alone_has():
    assert app.parse(search.OPTIONS, []) == search.Rows()
    assert app.parse(search.OPTIONS, ["--what=images"]) == search.Images()
    assert app.parse(search.OPTIONS, ["--image_folder=x"]).image_folder == "x"
    with pytest.raises(UsageError, match="--what=words: expected one of rows, images"):
        app.parse(search.OPTIONS, ["--what=words"])
    with pytest.raises(UsageError, match="nearest"):
        app.parse(search.OPTIONS, ["--nearest=3"])


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().embedding_dim = 1


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_parse(preset):
    """Every flag of a preset ends in a config: none is misspelt, none is read by nobody."""
    expanded = list(app.expand_presets([f"--preset={preset}"]))
    found = app.parse(Options, expanded)
    values = {**found.config.to_dict(), "logging": dataclasses.asdict(found.logging)}
    values = {name: value for part in values.values() for name, value in part.items()}
    words = dict(word.removeprefix("--").split("=", 1) for word in expanded if "=" in word)
    assert words
    for name, word in words.items():  # of several, the last
        assert str(values[name]) == word or float(values[name]) == float(word)


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
    ("part", "value"),
    [
        ({"regularizer": None}, "regularizer is None, of NoneType"),
        ({"regularizer": 3}, "regularizer is 3, of int"),
        ({"active_bits": 2.5}, "active_bits is 2.5, of float"),
        ({"active_bits": True}, "active_bits is True, of bool"),
        ({"margin": "wide"}, "margin is 'wide', of str"),
        ([], "ObjectiveConfig is a mapping, not list"),
    ],
)
def test_a_record_with_values_of_other_types_is_refused(part, value):
    """Python would take them, and whoever asks for the method would get no name."""
    with pytest.raises(TypeError, match=re.escape(value)):
        TrainConfig.from_dict({"objective": part})
    assert TrainConfig.from_dict({"objective": {"margin": 1}}).objective.margin == 1


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

    values = absl_flags.FlagValues()
    config.define(OptimizationConfig, Same, into=values)
    with pytest.raises(ValueError, match="--batch_size: two configs define it differently"):
        config.define(Other, into=values)


def test_every_flag_but_where_the_data_are_belongs_to_the_experiment():
    data = DataConfig("image_folder")
    classes = [*PARTS, type(data.options)]
    names = {field.name for kind in classes for field in config.option_fields(kind)}
    assert TrainConfig(data).identity.keys() == names - {"data_dir", "on_error"}
