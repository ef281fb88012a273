"""A training that starts from the weights of an earlier encoder."""

import json

import numpy as np
import pytest

from sparse_embed import models
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.training.checks import check
from sparse_embed.experiments.training.loop import CONFIG, train
from sparse_embed.experiments.training.warm_start import copy_weights
from sparse_embed.flags.train_config import (
    DataConfig,
    LoggingConfig,
    ModelConfig,
    OptimizationConfig,
    TrainConfig,
)


def build(dim=12, activation="relu", name="convnet", width=0.1, shape=(16, 16, 1)):
    return models.build_encoder(name, dim, activation, shape, width)


def by_layer(encoder):
    return [(layer.name, layer.get_weights()) for layer in encoder.layers if layer.weights]


def disturb(encoder):
    """Gives every weight another value, since batch norms all start with the same ones."""
    rng = np.random.default_rng(0)
    encoder.set_weights([rng.uniform(0.1, 1, w.shape) for w in encoder.get_weights()])
    return encoder


def test_all_weights_are_taken_over():
    source, target = disturb(build(activation="none")), build()
    copy_weights(source, target, head=True)
    for old, new in zip(source.get_weights(), target.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_head_that_is_left_out_stays_fresh():
    source, target = disturb(build(dim=5)), build(dim=12)
    before = dict(by_layer(target))
    copy_weights(source, target, head=False)
    for (_, old), (name, new) in zip(by_layer(source), by_layer(target), strict=True):
        expected = before[name] if name.startswith("embedding") else old
        for got, wanted in zip(new, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("other", "head", "message"),
    [
        (
            {"dim": 5},
            True,
            r"layer embedding_linear is Dense \(40, 12\) here and Dense "
            r"\(40, 5\) there; --nowarm_start_head",
        ),
        (
            {"width": 0.2},
            False,
            r"layer conv2d\w* is Conv2D \(5, 5, 1, 2\) here and Conv2D "
            r"\(5, 5, 1, 5\) there$",
        ),
        ({"name": "nin"}, False, r"layer conv2d\w* is Conv2D"),
        ({"name": "linear", "shape": (8,)}, False, r"layer conv2d\w* is Conv2D .* BatchNorm"),
    ],
)
def test_other_shapes_are_refused_and_nothing_copied(other, head, message):
    source, target = build(**other), build()
    before = target.get_weights()
    with pytest.raises(UsageError, match=message):
        copy_weights(source, target, head)
    for old, new in zip(before, target.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.fixture
def training(vectors, tmp_path):
    """Trains for one step so small that it changes no weight, from the encoder that is given."""

    def run(folder, **flags):
        config = TrainConfig(
            DataConfig("dense_embeddings", str(vectors)),
            ModelConfig("linear", **flags),
            optimization=OptimizationConfig("sgd", 1e-12, steps=1, batch_size=16),
        )
        check(config)
        (tmp_path / folder).mkdir(exist_ok=True)
        train(config, tmp_path / folder, LoggingConfig())
        return tmp_path / folder

    return run


def test_training_starts_there(training, tmp_path):
    source = disturb(build(7, name="linear", shape=(8,)))
    source.save(tmp_path / "source.keras")
    whole = training("whole", embedding_dim=7, warm_start=str(tmp_path / "source.keras"))
    found = Run.open(whole).encoder().get_layer("embedding_linear").get_weights()
    np.testing.assert_allclose(found, source.get_layer("embedding_linear").get_weights(), rtol=1e-6)
    # From a run's folder, with another dimension.
    backbone = training("backbone", embedding_dim=6, warm_start=str(whole), warm_start_head=False)
    first = next(layer for layer in source.layers if layer.weights)
    found = next(layer for layer in Run.open(backbone).encoder().layers if layer.weights)
    np.testing.assert_allclose(found.get_weights()[0], first.get_weights()[0], rtol=1e-6)  # gamma

    with pytest.raises(UsageError, match=r"--warm_start was .*source\.keras, now None"):
        training("whole", embedding_dim=7)


def test_frozen_backbone_stays_as_it_was(training, tmp_path):
    """Even the statistics of its batch norm; the head's follow the data, whatever the rate."""
    source = disturb(build(7, name="linear", shape=(8,)))
    source.save(tmp_path / "source.keras")
    start = {"embedding_dim": 7, "warm_start": str(tmp_path / "source.keras")}
    ends = [training("all", **start), training("head", **start, train_backbone=False)]
    for end, backbone_moves in zip(ends, (True, False), strict=True):
        moved = {"backbone": False, "head": False}
        for layer, first in zip(Run.open(end).encoder().layers, source.layers, strict=True):
            part = "head" if layer.name.startswith("embedding_") else "backbone"
            pairs = zip(first.get_weights(), layer.get_weights(), strict=True)
            moved[part] |= not all(np.array_equal(old, new) for old, new in pairs)
        assert moved == {"backbone": backbone_moves, "head": True}


def test_mistakes_leave_the_folder_free(training, tmp_path):
    """After a mistake the corrected flags must not count as another experiment."""
    with pytest.raises(UsageError, match=r"--warm_start=.*: expected a folder that holds enc"):
        training("run", embedding_dim=7, warm_start=str(tmp_path / "nowhere"))
    build(5, name="linear", shape=(8,)).save(tmp_path / "source.keras")
    with pytest.raises(UsageError, match="layer embedding_linear"):
        training("run", embedding_dim=7, warm_start=str(tmp_path / "source.keras"))
    with pytest.raises(UsageError, match="--nowarm_start_head needs --warm_start"):
        training("run", embedding_dim=7, warm_start_head=False)
    with pytest.raises(UsageError, match="--notrain_backbone needs --warm_start"):
        training("run", embedding_dim=7, train_backbone=False)
    assert not (tmp_path / "run" / CONFIG).exists()
    training("run", embedding_dim=7)
    assert json.loads((tmp_path / "run" / CONFIG).read_text())["warm_start"] is None


def test_a_resumed_run_does_not_start_there_again(training, tmp_path):
    """The statistics of batch norms, which follow the data, are those of its checkpoint."""
    source = disturb(build(7, name="linear", shape=(8,)))
    source.save(tmp_path / "source.keras")
    start = {"embedding_dim": 7, "warm_start": str(tmp_path / "source.keras")}
    trained = Run.open(training("run", **start)).encoder().get_weights()
    (tmp_path / "run" / RECORD).unlink()  # as if it had been killed before its end
    resumed = Run.open(training("run", **start)).encoder().get_weights()
    for old, new in zip(trained, resumed, strict=True):
        np.testing.assert_array_equal(old, new)
    first = source.get_weights()
    assert any(not np.array_equal(a, b) for a, b in zip(first, resumed, strict=True))
