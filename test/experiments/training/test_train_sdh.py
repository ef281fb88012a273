"""Sparse Deep Hashing from the scripts: train, embed codes, search buckets."""

import dataclasses

import numpy as np
import pytest
from helpers import call

from sparse_embed import retrieval
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.training.checks import check
from sparse_embed.experiments.training.loop import train
from sparse_embed.flags.train_config import (
    DataConfig,
    LoggingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizationConfig,
    TrainConfig,
)


def configuration(path, **changes):
    config = TrainConfig(
        DataConfig("dense_embeddings", str(path), validation=5, test=10),
        ModelConfig("linear", 32, "none", 0.05),
        ObjectiveConfig("sdh", margin=0.5, regularizer="none", active_bits=2),
        OptimizationConfig(learning_rate=0.01, steps=80, batch_size=64, examples_per_class=4),
    )
    return dataclasses.replace(
        config,
        **{
            name: dataclasses.replace(getattr(config, name), **change)
            for name, change in changes.items()
        },
    )


def test_training_lowers_the_loss_and_codes_are_the_largest_dimensions(vectors, tmp_path):
    config = configuration(vectors)
    check(config)
    record = train(config, tmp_path, LoggingConfig(summary_every=40)).record
    first, last = (record["curves"][i]["loss"] for i in (0, -1))
    assert last < 0.9 * first
    call(
        "embed",
        f"--model_dir={tmp_path}",
        f"--output={tmp_path / 'test.npy'}",
        f"--codes_output={tmp_path / 'codes.npz'}",
    )
    dense, codes = (embedding_files.load(tmp_path / name) for name in ("test.npy", "codes.npz"))
    np.testing.assert_array_equal(codes.labels, dense.labels)
    largest = np.argsort(-dense.vectors, axis=1)[:, :2]
    np.testing.assert_array_equal(np.sort(largest), codes.vectors.indices.reshape(-1, 2))
    assert len(retrieval.SDHSearch(codes.vectors).num_candidates(codes.vectors)) == 120


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"activation": "relu"}}, "--loss=sdh makes codes.*needs --activation=none"),
        ({"model": {"embedding_dim": 1}}, "--active_bits=2: expected at most --embedding_dim=1"),
        ({"optimization": {"examples_per_class": 3}}, "=3: expected a divisor of --batch_size=64"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(vectors, changes, message):
    with pytest.raises(UsageError, match=message):
        check(configuration(vectors, **changes))


def test_classes_too_small_for_their_groups_are_a_mistake_of_the_flags(vectors, tmp_path):
    config = configuration(vectors, optimization={"examples_per_class": 16})
    with pytest.raises(UsageError, match="--examples_per_class=16: expected at most 12"):
        train(config, tmp_path, LoggingConfig())


def test_codes_need_an_sdh_run(tmp_path):
    (tmp_path / "train.json").write_text(
        '{"config": {"objective": {"loss": "arcface"}, "model": {"activation": "none"}}}'
    )
    with pytest.raises(UsageError, match=r"x\.npz: expected a run with --loss=sdh"):
        call(
            "embed",
            f"--model_dir={tmp_path}",
            f"--output={tmp_path / 'x.npy'}",
            f"--codes_output={tmp_path / 'x.npz'}",
        )
