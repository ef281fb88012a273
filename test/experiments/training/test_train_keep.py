"""One encoder, every budget: training with cut embeddings, and cutting what an encoder gives."""

import json

import numpy as np
import pytest
from helpers import call

from sparse_embed import losses, models
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.training import recorder
from sparse_embed.experiments.training.build import training_model
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


def run(vectors, folder, keep=3):
    config = TrainConfig(
        DataConfig("dense_embeddings", str(vectors), validation=5, test=10),
        ModelConfig("linear", 32, train_keep=keep),
        ObjectiveConfig(regularizer_weight=1.0, warmup_steps=10),
        OptimizationConfig(steps=20, batch_size=32),
    )
    check(config)
    folder.mkdir(exist_ok=True)
    return train(config, folder, LoggingConfig(5, 20, 5))


def run_embed(folder, *arguments):
    call("embed", f"--model_dir={folder}", *arguments)


@pytest.fixture(scope="module")
def whole_run(vectors, tmp_path_factory):
    """A run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("keep") / "run"
    run(vectors, folder)
    return folder


def test_embeddings_are_cut_in_training_and_not_afterwards(whole_run, vectors):
    record = json.loads((whole_run / "train.json").read_text())
    assert record["config"]["model"]["train_keep"] == 3
    assert json.loads((whole_run / "config.json").read_text())["train_keep"] == 3
    curves = {row["step"]: row for row in record["curves"]}
    # 12 values at first, 3 from step 10 on; about half of the 32 are active.
    assert 5 < curves[5]["sparsity_active_dimensions"] <= 12
    assert 2.9 < curves[20]["sparsity_active_dimensions"] <= 3
    assert curves[20]["loss"] < curves[5]["loss"]
    encoder = Run.open(whole_run).encoder()
    assert not any(isinstance(layer, models.KeepLargest) for layer in encoder.layers)
    rows = encoder(np.load(vectors)["embeddings"]).numpy()
    assert np.count_nonzero(rows, axis=1).mean() > 6


def test_interrupted_run_goes_on_with_its_budget(whole_run, vectors, tmp_path, monkeypatch):
    """Stopped at step 7, while the budget falls; it goes on from the checkpoint of step 5."""

    def interrupted(self, batch, logs=None):
        self._step += 1
        if self._step == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(recorder.Recorder, "on_train_batch_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(vectors, tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="--train_keep was 3, now 4"):
        run(vectors, tmp_path / "run", keep=4)
    resumed = run(vectors, tmp_path / "run")
    for got, expected in zip(
        resumed.encoder().get_weights(), Run.open(whole_run).encoder().get_weights(), strict=True
    ):
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_monitor_and_penalty_see_what_is_cut():
    import keras

    config = TrainConfig(model=ModelConfig("linear", 16, train_keep=2))
    encoder = models.build_encoder("linear", 16, "relu", input_shape=(8,))
    model = training_model(encoder, 5, config, keras.Model)
    kinds = [type(layer) for layer in model.layers[2:]]
    assert kinds == [
        models.KeepLargest,
        losses.SparsityMonitor,
        losses.FlopsRegularization,
        models.ArcFaceHead,
    ]
    cut = model.layers[2]
    assert (cut.k, cut.anneal_steps) == (2, config.objective.warmup_steps)


def test_embed_cuts_what_it_writes(whole_run, tmp_path):
    whole, cut = tmp_path / "whole.npz", tmp_path / "cut.npz"
    run_embed(whole_run, f"--output={whole}")
    dense = tmp_path / "inputs.npy"
    run_embed(whole_run, f"--output={cut}", "--keep=4", f"--inputs_output={dense}")
    rows, few = embedding_files.load(whole), embedding_files.load(cut)
    assert few.provenance["keep"] == 4
    assert "keep" not in rows.provenance
    assert "keep" not in embedding_files.load(dense).provenance
    expected = rows.vectors.toarray()
    kept = np.argsort(-np.abs(expected), axis=1)[:, :4]
    mask = np.zeros(expected.shape, bool)
    np.put_along_axis(mask, kept, True, axis=1)
    expected = np.where(mask, expected, 0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(few.vectors.toarray(), expected, atol=1e-6)
    np.testing.assert_array_equal(few.labels, rows.labels)


@pytest.mark.parametrize("keep", ["32,16", "32:8"])
def test_embed_takes_one_budget(whole_run, tmp_path, keep):
    with pytest.raises(UsageError, match=f"--keep={keep}: expected one number"):
        run_embed(whole_run, f"--output={tmp_path / 'x.npz'}", f"--keep={keep}")


@pytest.mark.parametrize("loss", ["arcface", "sdh"])
def test_dense_embeddings_and_codes_are_not_cut(tmp_path, loss):
    config = {"objective": {"loss": loss}, "model": {"activation": "none"}}
    (tmp_path / "train.json").write_text(json.dumps({"config": config}))
    with pytest.raises(UsageError, match="--keep=32: expected a run with --activation=relu"):
        run_embed(tmp_path, f"--output={tmp_path / 'x.npy'}", "--keep=32")
