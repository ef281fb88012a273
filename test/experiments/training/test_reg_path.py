"""One training under increasing lambda, with a snapshot of each."""

import json

import numpy as np
import pytest

from sparse_embed.experiments import recorder, train
from sparse_embed.experiments.restarts import RestartedCosine
from sparse_embed.experiments.runs import load_encoder, load_record
from sparse_embed.flags import app, data, logging, model, objective, optimization

ENDS = [24, 32, 40]  # --steps=24, then twice --path_steps=8
LAMBDAS = [0.5, 1, 4]


def run(vectors, folder, **changes):
    path = {"reg_path": "0.5,1,4", "warmup_steps": 10, **changes}
    config = train.TrainConfig(
        data.DataConfig("dense_embeddings", str(vectors), validation=5),
        model.ModelConfig("linear", 16),
        objective.ObjectiveConfig(**path),
        optimization.OptimizationConfig(
            steps=24, batch_size=32, path_steps=8 if path["reg_path"] else None
        ),
    )
    train.check(config)
    folder.mkdir(exist_ok=True)
    return train.train(config, folder, logging.LoggingConfig(8, 24, 8))


def same_weights(one, two):
    for a, b in zip(load_encoder(one).get_weights(), load_encoder(two).get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.fixture(scope="module")
def path_run(vectors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("path") / "run"
    run(vectors, folder)
    return folder


def test_each_weight_has_a_snapshot_and_its_point_of_the_curve(path_run):
    for weight, end in zip(LAMBDAS, ENDS, strict=True):
        record = load_record(train.snapshot_folder(path_run, weight))
        assert record["config"]["objective"]["regularizer_weight"] == weight
        last = record["curves"][-1]
        assert last["step"] == end
        assert last["regularizer_weight"] == weight
        assert set(train.PATH_FIGURES) <= last.keys()
    same_weights(path_run, train.snapshot_folder(path_run, 4))
    rates = {row["step"]: row["learning_rate"] for row in record["curves"]}
    assert rates[24] == pytest.approx(0.001)  # the next stage's first
    assert rates[40] == pytest.approx(0, abs=1e-9)


def test_first_snapshot_is_that_of_an_independent_run(path_run, vectors, tmp_path):
    run(vectors, tmp_path / "run", reg_path=None, regularizer_weight=0.5)
    same_weights(tmp_path / "run", train.snapshot_folder(path_run, 0.5))


@pytest.mark.parametrize("stop", [29, 32])  # within the second stage; before its snapshot
def test_interrupted_path_goes_on(path_run, vectors, tmp_path, monkeypatch, stop):
    def interrupted(self, batch, logs=None):
        self._step += 1
        if self._step == stop:
            raise KeyboardInterrupt

    def no_snapshot(folder, encoder, record):
        if folder.name == "lambda_1":
            raise KeyboardInterrupt
        save_run(folder, encoder, record)

    save_run = train.save_run
    if stop in ENDS:
        monkeypatch.setattr(train, "save_run", no_snapshot)
    else:
        monkeypatch.setattr(recorder.Recorder, "on_train_batch_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(vectors, tmp_path / "run")
    assert not train.snapshot_folder(tmp_path / "run", 1).exists()
    monkeypatch.undo()
    run(vectors, tmp_path / "run")
    for weight in LAMBDAS:
        same_weights(
            train.snapshot_folder(tmp_path / "run", weight), train.snapshot_folder(path_run, weight)
        )
    with pytest.raises(app.UsageError, match=r"--reg_path was 0\.5,1,4, now 0\.5,1,8"):
        run(vectors, tmp_path / "run", reg_path="0.5,1,8")
    steps = [row["step"] for row in json.loads((tmp_path / "run/train.json").read_text())["curves"]]
    assert steps == [8, 16, 24, 32, 40]


@pytest.mark.parametrize("text", ["10,10", "20,10", "0,1", "-1,2", "1,,2", "a", "", "1,inf"])
def test_other_paths_are_refused(text):
    with pytest.raises(ValueError, match=r"."):
        objective.parse_path(text)


def test_cosine_starts_again_in_each_stage():
    """Half a cosine over 24 steps, then over 8, and 0 for ever after the last."""
    schedule = RestartedCosine(0.01, [24, 32])
    for step in (0, 5, 23, 24, 30, 32, 50):
        fraction = step / 24 if step < 24 else min(1, (step - 24) / 8)
        expected = 0.005 * (1 + np.cos(np.pi * fraction))
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-8)
    assert RestartedCosine.from_config(schedule.get_config())(30) == schedule(30)
