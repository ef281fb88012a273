"""The presets of faces hold the paper's hyper-parameters (section 5 and its appendix)."""

import subprocess
import sys

import pytest

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.training.checks import check
from sparse_embed.flags import app
from sparse_embed.flags.options.train import Options

PAPER = {
    "mobilefacenet": {
        "activation": "relu",
        "batch_size": 256,
        "flops": ["200", "300", "400", "600"],
        "l1": ["1.5", "2.0", "2.7", "3.5"],
    },
    "resnet101": {
        "activation": "soft_threshold",
        "batch_size": 64,
        "flops": ["50", "100", "200", "630"],
        "l1": ["2.0", "3.0", "5.0", "6.0"],
    },
}
COMMON = {
    "dataset": "recordio",
    "loss": "arcface",
    "margin": 0.5,
    "scale": 64.0,
    "optimizer": "sgd",
    "learning_rate": 0.001,
    "learning_rate_schedule": "step",
    "decay_steps": 170_000,
    "steps": 230_000,
}


def read(preset, *more):
    """Returns all flags of a preset as the training script would take them, flattened."""
    config = app.parse(Options, [f"--preset={preset}", *more]).config
    check(config)
    return config.identity


@pytest.mark.parametrize("model", PAPER)
@pytest.mark.parametrize("regularizer", ["flops", "l1"])
def test_sparse_faces(model, regularizer):
    for weight in PAPER[model][regularizer]:
        flags = read(f"{model}_{regularizer}_{weight}", "--data_dir=faces")
        expected = {
            **COMMON,
            "model": model,
            "embedding_dim": 1024,
            "activation": PAPER[model]["activation"],
            "batch_size": PAPER[model]["batch_size"],
            "regularizer": regularizer,
            "regularizer_weight": float(weight),
        }
        assert expected.items() <= flags.items()


@pytest.mark.parametrize("model", PAPER)
@pytest.mark.parametrize("dim", [128, 512])
def test_dense_faces(model, dim):
    flags = read(f"{model}_dense{dim}", "--data_dir=faces")
    expected = {
        **COMMON,
        "model": model,
        "embedding_dim": dim,
        "activation": "none",
        "regularizer": "none",
        "batch_size": PAPER[model]["batch_size"],
    }
    assert expected.items() <= flags.items()


@pytest.mark.parametrize(
    ("model", "steps", "batch_size"), [("mobilefacenet", 150_000, 256), ("resnet101", 200_000, 64)]
)
def test_sparse_deep_hashing_of_faces(model, steps, batch_size):
    flags = read(f"{model}_sdh", "--data_dir=faces")
    expected = {
        "model": model,
        "dataset": "recordio",
        "loss": "sdh",
        "embedding_dim": 512,
        "active_bits": 3,
        "pairwise_cost": 0.1,
        "learning_rate": 0.001,
        "learning_rate_schedule": "constant",
        "steps": steps,
        "batch_size": batch_size,
    }
    assert expected.items() <= flags.items()


@pytest.mark.parametrize("active_bits", [1, 2, 3])
def test_sparse_deep_hashing_of_cifar100(active_bits):
    flags = read(f"cifar100_sdh_k{active_bits}", "--data_dir=cifar")
    expected = {"loss": "sdh", "model": "nin", "embedding_dim": 64, "active_bits": active_bits}
    assert expected.items() <= flags.items()


@pytest.mark.parametrize("kind", ["dense", "flops", "l1"])
def test_cifar100(kind):
    flags = read(f"cifar100_{kind}", "--data_dir=cifar")
    activation = "none" if kind == "dense" else "soft_threshold"
    expected = {"loss": "triplet", "embedding_dim": 64, "activation": activation, "model": "nin"}
    assert expected.items() <= flags.items()


@pytest.mark.parametrize("preset", ["glyphs_dense", "glyphs_flops", "glyphs_sdh"])
def test_glyphs_need_nothing(preset):
    assert read(preset)["steps"] == 1000


@pytest.mark.parametrize("kind", ["dense512", "flops", "l1", "sdh"])
def test_words_are_trained_as_glyphs_are(kind):
    """But for the data."""
    own = {"dataset": "words", "word_classes": 6000}
    assert read(f"words_{kind}") == {**read(f"glyphs_{kind}"), **own}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of presets of our own."""
    monkeypatch.setattr(app, "PRESETS", tmp_path)
    return tmp_path


def test_a_preset_may_have_a_base_and_later_flags_replace_earlier_ones(folder):
    (folder / "_base.flags").write_text("# all of them\n--steps=5\n\n--seed=1\n")
    (folder / "leaf.flags").write_text("--preset=_base\n--steps=7\n")
    found = list(app.expand_presets(["script", "--seed=0", "--preset", "leaf", "--margin=0.1"]))
    assert found == ["script", "--seed=0", "--steps=5", "--seed=1", "--steps=7", "--margin=0.1"]
    assert app.preset_names() == ["leaf"]  # a base alone is no experiment


def test_presets_that_lead_nowhere_are_refused(folder):
    (folder / "one.flags").write_text("--preset=two\n")
    (folder / "two.flags").write_text("--preset=one\n")
    (folder / "three.flags").write_text("--preset=four\n")
    with pytest.raises(UsageError, match="--preset=one: expected a base other than itself"):
        list(app.expand_presets(["--preset=one"]))
    with pytest.raises(UsageError, match="--preset=four: expected one of one, three, two"):
        list(app.expand_presets(["--preset=three"]))


def test_faces_are_leaves_over_a_base():
    for name in app.preset_names():
        if name.startswith(("mobilefacenet", "resnet101")):
            lines = (app.PRESETS / f"{name}.flags").read_text().splitlines()
            assert len([line for line in lines if line.startswith("--")]) <= 4, name


def test_unknown_preset_is_told_with_the_choices():
    with pytest.raises(UsageError, match=r"--preset=vgg: expected one of .*resnet101_l1_6\.0"):
        list(app.expand_presets(["--preset=vgg"]))


@pytest.mark.parametrize("word", ["--help", "--helpfull"])
def test_help_shows_the_values_in_force(word):
    command = [sys.executable, "-m", "sparse_embed.experiments.train", "--preset=glyphs_l1", word]
    done = subprocess.run([*command, "--steps=77"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    weight = text.partition("--regularizer_weight: Final weight lambda of the penalty")[2]
    assert weight[:100].partition("(default: ")[2].startswith("'0.6')")
    assert "--steps: Training steps. (default: '77')" in text
    assert "--regularizer: <none|flops|l1|df_flops|masked_flops>: " in text
