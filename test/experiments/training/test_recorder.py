"""A signal during training costs nothing: the run is saved, and ends as if undisturbed."""

import json
import signal
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest

SCRIPT = ("-m", "sparse_embed.experiments.train")


def train(vectors, folder, *how):
    flags = ["--dataset=dense_embeddings", f"--data_dir={vectors}", "--model=linear"]
    flags += ["--width=0.03", "--embedding_dim=16", "--batch_size=32", "--validation=5"]
    flags += ["--steps=40", "--summary_every=10", "--evaluate_every=20", "--checkpoint_every=40"]
    flags += ["--deterministic", f"--model_dir={folder}"]
    return subprocess.run(
        [sys.executable, *(how or SCRIPT), *flags], capture_output=True, text=True, timeout=300
    )


def weights(folder):
    return keras.models.load_model(folder / "encoder.keras").get_weights()


@pytest.fixture(scope="module")
def whole_run(vectors, tmp_path_factory):
    """A run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train(vectors, folder).returncode == 0
    return folder


# Sends itself a signal while it trains step argv[2].
SIGNALLED = """
import os, sys
number, at = int(sys.argv.pop(1)), int(sys.argv.pop(1))
from sparse_embed.experiments import train
from sparse_embed.experiments.training.recorder import Recorder
from sparse_embed.flags import app
before = Recorder.on_train_batch_end

def on_train_batch_end(self, batch, logs=None):
    if self._step + 1 == at:
        os.kill(os.getpid(), number)
    before(self, batch, logs)

Recorder.on_train_batch_end = on_train_batch_end
app.run(train.main, train.Options)
"""


@pytest.mark.parametrize(
    ("number", "step"), [(signal.SIGTERM, 13), (signal.SIGINT, 20)], ids=["SIGTERM", "SIGINT"]
)
def test_stopped_run_keeps_every_step_and_ends_as_an_undisturbed_one(
    whole_run, vectors, tmp_path, number, step
):
    """Within an interval of the curves, and at the end of one."""
    folder = tmp_path / "run"
    stopped = train(vectors, folder, "-c", SIGNALLED, str(int(number)), str(step))
    assert stopped.returncode == 128 + number
    line = stopped.stderr.replace("\r", "\n").splitlines()[-1]
    assert f"stopped by {number.name} at step {step} of 40" in line
    assert str(folder) in line
    assert "same flags" in line
    assert "Traceback" not in stopped.stderr
    with h5py.File(folder / "checkpoints" / "last.weights.h5") as file:
        assert file.attrs["steps_trained"] == step
    assert [row["step"] for row in json.loads((folder / "curves.json").read_text())] == (
        [10] if step == 13 else [10, 20]
    )
    assert train(vectors, folder).returncode == 0
    for resumed, whole in zip(weights(folder), weights(whole_run), strict=True):
        np.testing.assert_array_equal(resumed, whole)
    resumed, whole = (
        json.loads((run / "train.json").read_text())["curves"] for run in (folder, whole_run)
    )
    measured = {"seconds", "images_per_second"}
    for row, expected in zip(resumed, whole, strict=True):
        assert row.keys() == expected.keys()
        assert {k: row[k] for k in row.keys() - measured} == {
            k: expected[k] for k in row.keys() - measured
        }
        assert row["seconds"] > 0
