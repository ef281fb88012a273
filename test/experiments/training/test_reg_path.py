"""One training under increasing lambda, with a snapshot of each."""

import json

import numpy as np
import pytest

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import run as runs
from sparse_embed.experiments.core.run import Run, snapshot_folder
from sparse_embed.experiments.training import recorder
from sparse_embed.experiments.training.checks import check
from sparse_embed.experiments.training.loop import train
from sparse_embed.experiments.training.restarted_cosine import RestartedCosine
from sparse_embed.flags.train_config import (
    DataConfig,
    LoggingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizationConfig,
    TrainConfig,
)

ENDS = [24, 32, 40]  # --steps=24, then twice --path_steps=8
LAMBDAS = [0.5, 1, 4]


def run(vectors, folder, **changes):
    path = {"reg_path": "0.5,1,4", "warmup_steps": 10, **changes}
    config = TrainConfig(
        DataConfig("dense_embeddings", str(vectors), validation=5),
        ModelConfig("linear", 16),
        ObjectiveConfig(**path),
        OptimizationConfig(steps=24, batch_size=32, path_steps=8 if path["reg_path"] else None),
    )
    check(config)
    folder.mkdir(exist_ok=True)
    return train(config, folder, LoggingConfig(8, 24, 8))


def weights(folder):
    return Run.open(folder).encoder().get_weights()


def same_weights(one, two):
    for a, b in zip(weights(one), weights(two), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.fixture(scope="module")
def path_run(vectors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("path") / "run"
    run(vectors, folder)
    return folder


def test_each_weight_has_a_snapshot_and_its_point_of_the_curve(path_run):
    for weight, end in zip(LAMBDAS, ENDS, strict=True):
        record = Run.open(snapshot_folder(path_run, weight)).record
        assert record["config"]["objective"]["regularizer_weight"] == weight
        last = record["curves"][-1]
        assert last["step"] == end
        assert last["regularizer_weight"] == weight
        assert {"recall_at_1", "evaluation_flops_per_row"} <= last.keys()
    same_weights(path_run, snapshot_folder(path_run, 4))
    rates = {row["step"]: row["learning_rate"] for row in record["curves"]}
    assert rates[24] == pytest.approx(0.001)  # the next stage's first
    assert rates[40] == pytest.approx(0, abs=1e-9)


def test_first_snapshot_is_that_of_an_independent_run(path_run, vectors, tmp_path):
    run(vectors, tmp_path / "run", reg_path=None, regularizer_weight=0.5)
    same_weights(tmp_path / "run", snapshot_folder(path_run, 0.5))


@pytest.mark.parametrize("stop", [29, 32])  # within the second stage; before its snapshot
def test_interrupted_path_goes_on(path_run, vectors, tmp_path, monkeypatch, stop):
    def interrupted(self, batch, logs=None):
        self._step += 1
        if self._step == stop:
            raise KeyboardInterrupt

    def no_snapshot(folder, encoder, record):
        if folder.name == "lambda_1":
            raise KeyboardInterrupt
        return save(folder, encoder, record)

    save = runs.save
    if stop in ENDS:
        monkeypatch.setattr(runs, "save", no_snapshot)
    else:
        monkeypatch.setattr(recorder.Recorder, "on_train_batch_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(vectors, tmp_path / "run")
    assert not snapshot_folder(tmp_path / "run", 1).exists()
    monkeypatch.undo()
    run(vectors, tmp_path / "run")
    for weight in LAMBDAS:
        same_weights(snapshot_folder(tmp_path / "run", weight), snapshot_folder(path_run, weight))
    with pytest.raises(UsageError, match=r"--reg_path was 0\.5,1,4, now 0\.5,1,8"):
        run(vectors, tmp_path / "run", reg_path="0.5,1,8")
    steps = [row["step"] for row in json.loads((tmp_path / "run/train.json").read_text())["curves"]]
    assert steps == [8, 16, 24, 32, 40]


@pytest.mark.parametrize("text", ["10,10", "20,10", "0,1", "-1,2", "1,,2", "a", "", "1,inf"])
def test_other_paths_are_refused(text):
    with pytest.raises(UsageError, match=f"--reg_path={text}: expected increasing positive"):
        check(TrainConfig(objective=ObjectiveConfig(reg_path=text)))


def test_cosine_starts_again_in_each_stage():
    """Half a cosine over 24 steps, then over 8, and 0 for ever after the last."""
    schedule = RestartedCosine(0.01, [24, 32])
    for step in (0, 5, 23, 24, 30, 32, 50):
        fraction = step / 24 if step < 24 else min(1, (step - 24) / 8)
        expected = 0.005 * (1 + np.cos(np.pi * fraction))
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-8)
    assert RestartedCosine.from_config(schedule.get_config())(30) == schedule(30)
