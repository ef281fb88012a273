"""How fast training is, on vectors."""

import numpy as np
import pytest
import training

from sparse_embed.flags.train_config import (
    DataConfig,
    ModelConfig,
    OptimizationConfig,
    TrainConfig,
)


def test_both_ways_are_timed_in_every_round(tmp_path):
    vectors = tmp_path / "vectors.npz"
    labels = np.repeat(np.arange(30), 8)
    rows = np.random.default_rng(0).normal(size=(240, 8)).astype(np.float32)
    np.savez(vectors, embeddings=rows, labels=labels)
    config = TrainConfig(
        DataConfig("dense_embeddings", str(vectors)),
        ModelConfig("linear", 16),
        optimization=OptimizationConfig(batch_size=32),
    )
    records = training.measure(config, rounds=2, steps=3, folder=tmp_path / "run")
    assert [record["method"] for record in records] == ["training", "bare"]
    for record in records:
        assert len(record["seconds"]) == 2
        rates = [32 * 3 / seconds for seconds in record["seconds"]]
        assert record["images_per_second"] == pytest.approx(2 / sum(1 / rate for rate in rates))


def test_ratio_is_the_median_over_the_rounds():
    """Bare steps take 0.9, 0.5 and 1 of the training's time."""
    records = [
        {"method": "training", "seconds": [10.0, 2.0, 4.0]},
        {"method": "bare", "seconds": [9.0, 1.0, 4.0]},
    ]
    assert training.speed_of_training(records) == 0.9
