"""The presets of faces hold the paper's hyper-parameters (section 5 and its appendix)."""

import dataclasses

import pytest
from absl import flags as absl_flags
from absl.testing import flagsaver

from sparse_embed.experiments import train
from sparse_embed.flags import app
from sparse_embed.flags.config import from_flags

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
    fields = [field.type for field in dataclasses.fields(train.TrainConfig)]
    with flagsaver.flagsaver():
        absl_flags.FLAGS(["script", f"--flagfile={app.preset_path(preset)}", *more])
        config = train.TrainConfig(*(from_flags(part) for part in fields))
    train.check(config)
    return {name: v for part in dataclasses.asdict(config).values() for name, v in part.items()}


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


def test_unknown_preset_is_told_with_the_choices():
    with pytest.raises(app.UsageError, match=r"--preset=vgg: expected one of .*resnet101_l1_6\.0"):
        app.preset_path("vgg")
