"""Two processes that train together equal one device with both batches; one may die.

The objective has all the state that there is: counts of active dimensions (DF-FLOPS), a controller
that adapts lambda (TargetFlops), a momentum for each weight, and a batch norm with moving averages.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from typing import NamedTuple

import h5py
import keras
import numpy as np
import pytest

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.training import devices
from sparse_embed.flags.train_config import DistributionConfig

SCRIPT = ["-m", "sparse_embed.experiments.train"]
# The script, whose process ends or pauses itself after a step, within an interval of checkpoints.
VICTIM = """
import os, runpy, signal, sys
from sparse_embed.experiments.training.recorder import Recorder

after = Recorder.on_train_batch_end

def hit(self, batch, logs=None):
    after(self, batch, logs)
    if self._step == {step}:
        os.kill(os.getpid(), signal.{signal})

Recorder.on_train_batch_end = hit
runpy.run_module("sparse_embed.experiments.train", run_name="__main__", alter_sys=True)
"""
STEPS = 30


def start(data, folder, *more, script=SCRIPT, **environment):
    flags = [
        "--dataset=dense_embeddings", f"--data_dir={data}", "--validation=5", "--model=linear",
        "--width=0.03", "--embedding_dim=16", "--regularizer=df_flops", "--target_flops=3",
        "--regularizer_weight=100", "--warmup_steps=5", "--optimizer=sgd", "--learning_rate=0.01",
        f"--steps={STEPS}", "--summary_every=10", "--checkpoint_every=10", "--deterministic",
        f"--model_dir={folder}",
    ]  # fmt: skip
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Without the level that TensorFlow was given in this process.
    variables = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"} | environment
    command = [sys.executable, *script, *flags, *more]
    return subprocess.Popen(command, env=variables, **pipes)


def start_two(data, folders, *more, scripts=(SCRIPT, SCRIPT)):
    """Starts the chief and another worker on free ports."""
    with socket.socket() as one, socket.socket() as two:
        for port in (one, two):
            port.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{port.getsockname()[1]}" for port in (one, two)]
    return [
        start(
            data, folders[place], "--strategy=multi_worker", "--batch_size=16", *more,
            script=scripts[place],
            TF_CONFIG=json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": place}}
            ),
        )
        for place in range(2)
    ]  # fmt: skip


def finish(process, code=0):
    output, errors = process.communicate(timeout=240)
    assert process.returncode == code, errors[-4000:]
    return output, errors


def steps_saved(folder):
    with h5py.File(folder / "checkpoints" / "last.weights.h5") as file:
        return int(file.attrs["steps_trained"])


def disturb(data, folder, victim, signal, step):
    """Starts both workers, of which one is hit; returns what the other says as it ends."""
    scripts = [SCRIPT, SCRIPT]
    scripts[victim] = ["-c", VICTIM.format(signal=signal, step=step)]
    workers = start_two(data, [folder, folder], scripts=scripts)
    try:
        return finish(workers[1 - victim], code=4)[1]
    finally:
        workers[victim].kill()
        workers[victim].communicate()


class Runs(NamedTuple):
    """Where the runs are, and what was said and saved when a worker was lost."""

    one: pathlib.Path
    chief: pathlib.Path
    other: pathlib.Path
    lost: pathlib.Path
    outputs: list[str]
    said: list[str]
    saved: list[int]


@pytest.fixture(scope="module")
def runs(vectors, tmp_path_factory):
    """One device; two workers, each with a folder of its own; two that are lost in turn."""
    folder = tmp_path_factory.mktemp("runs")
    found = Runs(*(folder / name for name in ("one", "chief", "other", "lost")), [], [], [])
    whole = [
        start(vectors, found.one, "--strategy=one_device", "--batch_size=32"),
        *start_two(vectors, [found.chief, found.other]),
    ]
    for victim, signal, step in ((1, "SIGKILL", 13), (0, "SIGSTOP", 24)):
        found.said.append(disturb(vectors, found.lost, victim, signal, step))
        found.saved.append(steps_saved(found.lost))
    for process in (*start_two(vectors, [found.lost, found.lost]), *whole):
        found.outputs.append(finish(process)[0])
    return found


def read_record(folder):
    return json.loads((folder / "train.json").read_text())


def read_state(folder):
    """Everything in the checkpoint, by its path there."""
    found = {}

    def keep(path, item):
        if isinstance(item, h5py.Dataset):
            found[path] = item[()]

    with h5py.File(folder / "checkpoints" / "last.weights.h5") as file:
        file.visititems(keep)
    return found


def assert_alike(got, expected, name=""):
    # Beside what is relative: a shift before a batch norm has no gradient, only rounding.
    allowed = 1e-4 * np.abs(expected).max() + 1e-6
    np.testing.assert_allclose(got, expected, rtol=0, atol=allowed, err_msg=name)


def test_losses_and_metrics_are_those_of_one_device(runs):
    one, two = read_record(runs.one), read_record(runs.chief)
    assert (one["replicas"], two["replicas"]) == (1, 2)
    assert [row["step"] for row in two["curves"]] == [10, 20, 30]
    timed = ("seconds", "images_per_second")
    for row, expected in zip(two["curves"], one["curves"], strict=True):
        assert row.keys() == expected.keys()
        for name in row.keys() - set(timed):
            assert row[name] == pytest.approx(expected[name], rel=1e-4), name
    assert one["curves"][-1]["penalty_loss"] > 0.5  # lambda * penalty: large enough to tell


def test_all_state_is_that_of_one_device(runs):
    one, two = read_state(runs.one), read_state(runs.chief)
    assert one.keys() == two.keys()
    for path, expected in one.items():
        assert_alike(two[path], expected, path)


def test_the_saved_encoder_is_that_of_one_device(runs):
    architectures, weights = [], []
    for path in (runs.one / "encoder.keras", runs.chief / "encoder.keras"):
        with zipfile.ZipFile(path) as archive:
            # Without numbers that only tell the objects of one process apart.
            config = re.sub(rb'"shared_object_id": \d+', b"", archive.read("config.json"))
            architectures.append(config)
        weights.append(keras.models.load_model(path).get_weights())
    assert architectures[0] == architectures[1]
    for got, expected in zip(*weights, strict=True):
        assert_alike(got, expected)


def test_only_the_chief_writes_and_both_have_its_weights(runs):
    assert list(runs.other.iterdir()) == []
    crc = read_record(runs.chief)["weights_crc32"]
    assert all(f"weights {crc}" in output for output in runs.outputs[-2:])


def test_a_run_that_lost_workers_ends_with_the_weights_of_an_undisturbed_one(runs):
    assert runs.saved == [10, 20]
    expected, found = read_record(runs.chief), read_record(runs.lost)
    assert found["weights_crc32"] == expected["weights_crc32"]
    losses = [[row["loss"] for row in record["curves"]] for record in (expected, found)]
    assert losses[0] == losses[1]
    before, after = read_state(runs.chief), read_state(runs.lost)
    assert before.keys() == after.keys()
    for path, values in before.items():
        np.testing.assert_array_equal(after[path], values, err_msg=path)


@pytest.mark.parametrize("which", [0, 1], ids=["worker killed", "chief silent"])
def test_the_survivor_says_so_in_one_line(runs, which):
    lines = runs.said[which].replace("\r", "\n").splitlines()
    said = [line for line in lines if line.strip() and "%|" not in line]  # nor the progress bar
    assert len(said) == 1, said
    assert said[0].startswith("train: lost another worker")
    assert "start all workers again with the same flags" in said[0]


def test_workers_that_see_other_checkpoints_refuse_to_go_on(vectors, runs, tmp_path):
    (tmp_path / "copy").mkdir()
    shutil.copytree(runs.lost / "checkpoints", tmp_path / "copy" / "checkpoints")
    workers = start_two(vectors, [tmp_path / "copy", tmp_path / "new"])
    errors = [worker.communicate(timeout=240)[1] for worker in workers]
    # The first to end can take the other's half of the answer with it.
    assert {worker.returncode for worker in workers} in ({2}, {2, 4}), errors
    assert "find checkpoints of steps 30, 0: expected a --model_dir" in "".join(errors)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "{",
        "[]",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "0"}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_an_environment_that_names_no_worker_is_refused(monkeypatch, value):
    monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(
        UsageError, match=r"--strategy=multi_worker with TF_CONFIG='.*expected JSON"
    ):
        devices.place(DistributionConfig("multi_worker"))
    assert devices.place(DistributionConfig()) == 0  # it is not read, and this process writes
