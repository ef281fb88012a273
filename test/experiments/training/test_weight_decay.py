"""--weight_decay: what a step takes from which weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.experiments.training import build
from sparse_embed.flags.train_config import (
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizationConfig,
    TrainConfig,
)

RATE, DECAY = 0.01, 0.3


def step(optimizer, decay, train_backbone):
    """Returns each weight of the same model: its name, whether it is trained, before and after."""
    config = TrainConfig(
        data=DataConfig("glyphs"),
        model=ModelConfig(
            "convnet",
            embedding_dim=16,
            activation="soft_threshold",
            width=0.25,
            train_backbone=train_backbone,
        ),
        objective=ObjectiveConfig(loss="arcface", warmup_steps=1),
        optimization=OptimizationConfig(
            optimizer=optimizer,
            learning_rate=RATE,
            learning_rate_schedule="step",
            decay_steps=100,
            weight_decay=decay,
            steps=1000,
            xla=False,
        ),
    )
    keras.utils.set_random_seed(0)
    _, model = build.build(config, (16, 16, 1), 12, tf.distribute.get_strategy())
    for weight in model.weights:  # biases of zero would tell nothing
        weight.assign(weight + 0.5)
    before = [weight.numpy() for weight in model.weights]
    images = np.random.default_rng(0).random((8, 16, 16, 1), np.float32)
    model.train_on_batch(images, np.arange(8, dtype=np.int32))
    trained = {id(weight) for weight in model.trainable_weights}
    return [
        (weight.path, id(weight) in trained, start, weight.numpy())
        for weight, start in zip(model.weights, before, strict=True)
    ]


@pytest.mark.parametrize("train_backbone", [True, False])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_step_takes_rate_times_decay_of_every_trained_weight(optimizer, train_backbone):
    """Beside what the gradient does: of kernels, batch norm and class weights, not frozen ones."""
    without = step(optimizer, 0.0, train_backbone)
    decayed = step(optimizer, DECAY, train_backbone)
    paths = []
    for (path, is_trained, start, plain), (_, _, same, end) in zip(without, decayed, strict=True):
        np.testing.assert_array_equal(same, start)
        taken = RATE * DECAY * start if is_trained else 0.0
        np.testing.assert_allclose(plain - end, taken, atol=2e-6, err_msg=path)
        paths += [path] if is_trained else []
    assert {path.rpartition("/")[2] for path in paths} >= {"kernel", "gamma", "class_weights"}
    assert any("conv2d" in path for path in paths) == train_backbone
