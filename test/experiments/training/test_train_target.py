"""Training for given FLOPs per row."""

import json

import numpy as np
import pytest

from sparse_embed import losses
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.training import recorder
from sparse_embed.experiments.training.build import schedule
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


@pytest.fixture(scope="module")
def vectors(tmp_path_factory, write_vectors):
    """Classes that overlap: a metric loss that stays, against which the penalty pushes."""
    return write_vectors(tmp_path_factory.mktemp("vectors") / "vectors.npz", 0.7)


def run(vectors, folder, **changes):
    config = TrainConfig(
        DataConfig("dense_embeddings", str(vectors), validation=5),
        ModelConfig("linear", 32),
        ObjectiveConfig(target_flops=2.0, warmup_steps=100, **changes),
        OptimizationConfig(steps=400, batch_size=64, learning_rate=0.02),
    )
    check(config)
    folder.mkdir(exist_ok=True)
    return train(config, folder, LoggingConfig(20, 400, 20))


@pytest.fixture(scope="module")
def whole_run(vectors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("target") / "run"
    run(vectors, folder)
    return folder


def test_run_ends_near_its_target(whole_run):
    """Near: 400 steps are few, and these classes so easy that lambda has to fall all the time."""
    record = json.loads((whole_run / "train.json").read_text())
    last = record["curves"][-1]
    assert last["sparsity_flops_per_row_unbiased"] == pytest.approx(2.0, rel=0.25)
    weights = [row["regularizer_weight"] for row in record["curves"]]
    assert len(set(weights)) == len(weights)  # it is logged, and adapts to the end
    assert Run.open(whole_run).setting == {"target_flops": 2.0, "run": "run"}


@pytest.mark.parametrize("stop", [57, 200])  # in the warm-up, within an interval; at the end of one
def test_interrupted_run_ends_with_the_same_weights(
    whole_run, vectors, tmp_path, monkeypatch, stop
):
    after = recorder.Recorder.on_train_batch_end

    def interrupted(self, batch, logs=None):
        after(self, batch, logs)
        if self._step == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(recorder.Recorder, "on_train_batch_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(vectors, tmp_path / "run")
    monkeypatch.undo()
    run(vectors, tmp_path / "run")
    pairs = [Run.open(folder).encoder().get_weights() for folder in (whole_run, tmp_path / "run")]
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", losses.REGULARIZERS)
def test_each_regularizer_takes_a_target_and_its_own_flags(vectors, tmp_path, method):
    weight = {"l1": 1.0, "df_flops": 100.0}.get(method, 30.0)
    given = {"regularizer_weight": weight, "df_cutoff": 0.4, "l0_mask": 2}
    record = run(vectors, tmp_path / "run", regularizer=method, **given).record
    cost = record["curves"][-1]["sparsity_flops_per_row_unbiased"]
    assert cost == pytest.approx(2.0, rel=0.25)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"target_flops": 512.0}, "--target_flops=512.0: expected less than --embedding_dim=512"),
        ({"target_flops": 2.0, "reg_path": "1,2"}, "expected no --reg_path, got 1,2"),
        ({"target_flops": 2.0, "regularizer_weight": 0.0}, "--regularizer_weight=0.0: expected a"),
        ({"target_flops": 2.0, "regularizer": "none"}, "--target_flops=2.0 needs a --regularizer"),
    ],
)
def test_flags_that_do_not_fit_are_refused(objective, message):
    with pytest.raises(UsageError, match=message):
        check(TrainConfig(objective=ObjectiveConfig(**objective)))


def test_schedule_follows_the_flags():
    objective = ObjectiveConfig(target_flops=3.0, regularizer_weight=5.0, warmup_steps=7)
    assert schedule(TrainConfig(objective=objective)).get_config() == {
        "flops": 3.0,
        "weight": 5.0,
        "steps": 7,
    }
    path = schedule(TrainConfig(objective=ObjectiveConfig(reg_path="1,2")))
    assert path.weights == [1.0, 2.0]
