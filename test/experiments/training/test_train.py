"""The real training script: resume, several devices, guards, TensorBoard."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sparse_embed.common.failures import UsageError
from sparse_embed.datasets import catalogue
from sparse_embed.experiments.training import build, guards, loop, projector, summaries
from sparse_embed.experiments.training.checks import check
from sparse_embed.experiments.training.loop import train
from sparse_embed.flags.train_config import (
    DataConfig,
    DistributionConfig,
    LoggingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizationConfig,
    TrainConfig,
)

GLYPHS = [
    "--embedding_dim=64",
    "--width=0.25",
    "--batch_size=16",
    "--initial_probability=0.2",
    "--warmup_steps=20",
    "--steps=40",
    "--summary_every=10",
    "--checkpoint_every=10",
    "--evaluate_every=20",
    "--deterministic",
]


def start(*arguments, **environment):
    command = [sys.executable, "-m", "sparse_embed.experiments.train", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def finish(process, code=0):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors
    return output + errors


def weights(folder):
    return keras.models.load_model(folder / "encoder.keras").get_weights()


def vector_flags(path, *more):
    return [
        "--dataset=dense_embeddings",
        f"--data_dir={path}",
        "--model=linear",
        "--width=0.03",
        "--embedding_dim=16",
        "--batch_size=32",
        "--steps=20",
        "--summary_every=10",
        "--validation=5",
        *more,
    ]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A glyph run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(start(*GLYPHS, f"--model_dir={folder}"))
    return folder


def test_a_log_of_training_has_the_bar_and_nothing_else(vectors, tmp_path):
    """No messages of TensorFlow and its libraries that are no errors."""
    flags = ["--dataset=dense_embeddings", "--model=linear", "--embedding_dim=16", "--test=10"]
    flags += ["--steps=40", "--warmup_steps=5", "--evaluate_every=20", "--checkpoint_every=20"]
    process = start(f"--data_dir={vectors}", *flags, f"--model_dir={tmp_path / 'tiny'}")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    (line,) = errors.split("\n")[:-1]
    assert line.startswith("tiny: 100%|")
    assert "\r" not in line


def test_killed_run_ends_with_the_weights_of_an_undisturbed_one(whole_run, tmp_path):
    folder = tmp_path / "run"
    process = start(*GLYPHS, f"--model_dir={folder}")
    checkpoint = folder / "checkpoints" / "last.weights.h5"
    deadline = time.monotonic() + 240
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / "train.json").exists()
    finish(start(*GLYPHS, f"--model_dir={folder}"))
    for resumed, whole in zip(weights(folder), weights(whole_run), strict=True):
        np.testing.assert_array_equal(resumed, whole)
    records = [json.loads((run / "train.json").read_text()) for run in (folder, whole_run)]
    assert [row["step"] for row in records[0]["curves"]] == [10, 20, 30, 40]
    losses = [[row["loss"] for row in record["curves"]] for record in records]
    assert losses[0] == losses[1]
    assert records[0]["weights_crc32"] == records[1]["weights_crc32"]


def test_ended_run_is_left_as_it_is(whole_run):
    before = {path: path.stat().st_mtime_ns for path in whole_run.rglob("*")}
    assert "trained in" in finish(start(*GLYPHS, f"--model_dir={whole_run}"))
    assert {path: path.stat().st_mtime_ns for path in whole_run.rglob("*")} == before


def test_changed_flag_is_refused_with_the_difference(whole_run):
    output = finish(start(*GLYPHS, "--margin=0.4", f"--model_dir={whole_run}"), code=2)
    assert "--margin was 0.5, now 0.4" in output
    assert len(output.strip().splitlines()) == 1


def test_tensorboard_has_every_tag(whole_run, tmp_path):
    events = EventAccumulator(str(whole_run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()
    written = {event.step for event in events.Tensors("loss/total")}
    assert written == {10, 20, 30, 40}
    expected = set(summaries.TAGS.values()) - {"evaluation/recall_at_1_reranked"}
    expected |= {"sparsity/activation_probabilities", "sparsity/activations", "images"}
    assert expected <= set(tags["tensors"])
    record = json.loads((whole_run / "train.json").read_text())
    for name in ("loss", "regularizer_weight", "sparsity_flops_per_row", "learning_rate"):
        values = [
            float(tf.make_ndarray(e.tensor_proto)) for e in events.Tensors(summaries.TAGS[name])
        ]
        assert values == pytest.approx([row[name] for row in record["curves"]], rel=1e-6)


def test_projector_has_unseen_classes(whole_run):
    folder = whole_run / "tensorboard"
    assert (folder / projector.CONFIG).exists()
    names = (folder / projector.NAMES).read_text().splitlines()
    assert len(names) == 1000
    assert all(name.startswith("U+") for name in names)


def test_best_and_last_checkpoint_are_kept(whole_run):
    curves = json.loads((whole_run / "train.json").read_text())["curves"]
    recalls = {row["step"]: row["recall_at_1"] for row in curves if "recall_at_1" in row}
    assert recalls.keys() == {20, 40}
    best = max(reversed(recalls), key=recalls.get)  # of equals the later one
    for name, step in (("best", best), ("last", 40)):
        with h5py.File(whole_run / "checkpoints" / f"{name}.weights.h5") as file:
            assert file.attrs["steps_trained"] == step


def test_what_was_started_is_kept_from_the_start(whole_run):
    start = json.loads((whole_run / "config.json").read_text())
    assert start["margin"] == 0.5
    assert start["seed"] == 0
    assert start["provenance"]["versions"]["keras"] == keras.__version__
    assert start["provenance"]["hardware"]["cores"] == os.cpu_count()
    record = json.loads((whole_run / "train.json").read_text())
    assert start["num_classes"] == record["num_classes"]


def test_data_of_other_classes_is_refused(tmp_path):
    """A killed run of 40 classes is started again, but --data_dir now has 30."""
    config = TrainConfig(DataConfig("dense_embeddings", "vectors.npz"))
    loop.save_start(tmp_path, config, 40)
    loop.check_same_experiment(tmp_path, config, 40)
    with pytest.raises(UsageError, match=r"vectors\.npz has 30 training classes, .* had 40"):
        loop.check_same_experiment(tmp_path, config, 30)


def test_terms_add_up_to_the_loss(whole_run):
    for row in json.loads((whole_run / "train.json").read_text())["curves"]:
        assert row["metric_loss"] + row["penalty_loss"] == pytest.approx(row["loss"], rel=1e-5)
        assert row["metric_loss"] > 1


@pytest.mark.parametrize("cut", [[], ["--train_keep=3", "--warmup_steps=15"]], ids=["whole", "cut"])
def test_two_devices_give_what_one_with_twice_the_batch_gives(vectors, tmp_path, cut):
    """SGD, because Adam divides by tiny gradients and so makes rounding errors large."""
    common = vector_flags(vectors, "--optimizer=sgd", "--learning_rate=0.01", "--deterministic")
    common += cut
    runs = {
        "two": ["--strategy=mirrored", "--logical_cpus=2", "--batch_size=16"],
        "one": ["--strategy=one_device", "--batch_size=32"],
    }
    processes = [
        start(*common, *more, f"--model_dir={tmp_path / name}") for name, more in runs.items()
    ]
    for process in processes:
        finish(process)
    two, one = (json.loads((tmp_path / name / "train.json").read_text()) for name in runs)
    assert two["replicas"] == 2
    for row, expected in zip(two["curves"], one["curves"], strict=True):
        for name in ("loss", "penalty", "sparsity_flops_per_row", "sparsity_active_dimensions"):
            assert row[name] == pytest.approx(expected[name], rel=1e-4)
    for got, expected in zip(weights(tmp_path / "two"), weights(tmp_path / "one"), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_absurd_lambda_is_stopped_with_advice(vectors, tmp_path):
    flags = vector_flags(vectors, "--regularizer_weight=1e7", "--warmup_steps=1", "--steps=400")
    output = finish(start(*flags, "--learning_rate=0.1", f"--model_dir={tmp_path / 'run'}"), code=3)
    assert "collapsed" in output
    assert "--regularizer_weight" in output
    assert "--warmup_steps" in output
    assert "Traceback" not in output


def test_poisoned_batch_is_stopped_and_the_last_good_checkpoint_kept(
    vectors, tmp_path, monkeypatch
):
    """From batch 12 on one value is NaN; the checkpoint of step 10 must survive."""
    good = catalogue.load("dense_embeddings", vectors, validation=5)

    def poison(step, batch):
        spoilt = tf.where(step >= 12, np.float32("nan"), np.float32(0))
        return batch[0] + spoilt, batch[1]

    class Poisoned(type(good["train"])):
        def training_batches(self, *arguments, **more):
            return super().training_batches(*arguments, **more).enumerate().map(poison)

    fields = {f.name: getattr(good["train"], f.name) for f in dataclasses.fields(good["train"])}
    bad = {**good, "train": Poisoned(**fields)}
    monkeypatch.setattr(loop, "load_data", lambda config: bad)
    config = TrainConfig(
        DataConfig("dense_embeddings", str(vectors), validation=5),
        ModelConfig("linear", 16, "relu", 0.03),
        ObjectiveConfig(),
        OptimizationConfig(steps=40, batch_size=32),
        DistributionConfig(),
    )
    folder = tmp_path / "run"
    folder.mkdir()
    log = LoggingConfig(summary_every=10, evaluate_every=10, checkpoint_every=10)
    with pytest.raises(
        guards.TrainingStopped, match=r"step \d+: metric_loss is nan.*--learning_rate"
    ):
        train(config, folder, log)
    assert not (folder / "train.json").exists()
    monkeypatch.undo()
    record = train(config, folder, log).record
    assert [row["step"] for row in record["curves"]] == [10, 20, 30, 40]
    assert np.isfinite(record["curves"][-1]["loss"])


def test_xla_compiles_the_step_and_trains_alike(vectors, tmp_path, monkeypatch):
    """The steps are the same up to rounding, and TensorFlow is told to compile those of --xla."""
    make, compiled, curves = tf.function, [], []

    def spy(*arguments, jit_compile=None, **more):
        compiled[-1] |= bool(jit_compile)
        return make(*arguments, jit_compile=jit_compile, **more)

    monkeypatch.setattr(tf, "function", spy)
    for xla in (True, False):
        config = TrainConfig(
            DataConfig("dense_embeddings", str(vectors), validation=5),
            ModelConfig("linear", 16, width=0.03),
            optimization=OptimizationConfig(steps=20, batch_size=32, xla=xla),
        )
        folder = tmp_path / str(xla)
        folder.mkdir()
        compiled.append(False)
        found = train(config, folder, LoggingConfig(summary_every=10))
        curves.append([row["loss"] for row in found.record["curves"]])
    assert compiled == [True, False]
    np.testing.assert_allclose(*curves, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "cifar100"}, "--dataset=cifar100 needs --data_dir"),
        ({"model": "vgg"}, "--model=vgg: expected one of convnet, haarnet, linear"),
        ({"regularizer": "l2"}, "--regularizer=l2: expected one of none, flops, l1, "),
        ({"loss": "mse"}, "--loss=mse: expected one of arcface, sdh, triplet"),
        ({"dataset": "mnist"}, "--dataset=mnist: expected one of glyphs"),
        ({"activation": "none"}, "--regularizer=flops needs --activation"),
        ({"margin": 2.0}, "--margin=2.0"),
        ({"learning_rate_schedule": "step"}, "--decay_steps=0: expected 1 to 1499"),
        ({"decay_steps": 5}, "--decay_steps=5 needs --learning_rate_schedule=step"),
        ({"logical_cpus": 2}, "--logical_cpus=2 needs --strategy=mirrored"),
        ({"xla": True, "strategy": "mirrored"}, "--xla cannot compile sums over replicas"),
        (
            {"xla": True, "loss": "sdh", "activation": "none", "regularizer": "none"},
            "--xla cannot compile --loss=sdh: expected one of arcface, triplet",
        ),
        (
            {"initial_probability": 0.1, "activation": "none", "regularizer": "none"},
            "--initial_probability=0.1 needs",
        ),
        (
            {"train_keep": 8, "activation": "none", "regularizer": "none"},
            "--train_keep=8 needs --activation=relu or soft_threshold and a --loss other than sdh",
        ),
        (
            {"train_keep": 8, "loss": "sdh", "regularizer": "none"},
            "--train_keep=8 needs --activation=relu or soft_threshold and a --loss other than sdh",
        ),
        ({"train_keep": 513}, "--train_keep=513: expected at most --embedding_dim=512"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(changes, message):
    parts = [
        DataConfig(),
        ModelConfig(),
        ObjectiveConfig(),
        OptimizationConfig(),
        DistributionConfig(),
    ]
    changed = [
        dataclasses.replace(
            part, **{k: v for k, v in changes.items() if k in dataclasses.asdict(part)}
        )
        for part in parts
    ]
    check(TrainConfig(*parts))
    with pytest.raises(UsageError, match=message):
        check(TrainConfig(*changed))


def test_learning_rate_of_the_paper():
    """0.001 for 170,000 steps, then a tenth of it."""
    paper = OptimizationConfig("sgd", 0.001, "step", decay_steps=170_000, steps=230_000)
    optimizer = build.optimizer(paper, [230_000])
    schedule = optimizer._learning_rate
    assert float(schedule(170_000)) == pytest.approx(1e-3)
    assert float(schedule(170_001)) == pytest.approx(1e-4)
    assert optimizer.momentum == 0.9


@pytest.mark.parametrize(
    ("begin", "start", "end", "every", "expected"),
    [
        (0, 0, 1500, 100, [(1500, 100)]),
        (0, 0, 60, 25, [(50, 25), (60, 10)]),
        (0, 50, 60, 25, [(60, 10)]),
        (0, 0, 7, 100, [(7, 7)]),
        (0, 60, 60, 25, []),
        (0, 13, 40, 10, [(20, 7), (40, 10)]),  # stopped within an interval
        (0, 13, 25, 10, [(20, 7), (25, 5)]),
        (0, 13, 20, 10, [(20, 7)]),
        (0, 55, 60, 25, [(60, 5)]),
        (60, 60, 110, 25, [(110, 25)]),  # a later stage
        (60, 70, 120, 25, [(85, 15), (110, 25), (120, 10)]),
    ],
)
def test_intervals_cover_the_run(begin, start, end, every, expected):
    assert loop._intervals(begin, start, end, every) == expected
