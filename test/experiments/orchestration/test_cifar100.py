"""The CIFAR-100 table: the real scripts on a few images in the official layout, and the records."""

import json
import pathlib
import pickle

import numpy as np
import pytest
from absl import flags as absl_flags
from absl.testing import flagsaver

from sparse_embed.common.failures import Failure, UsageError
from sparse_embed.experiments import cifar100
from sparse_embed.experiments.evaluation import records
from sparse_embed.experiments.evaluation.cifar100 import chosen, evaluate_run
from sparse_embed.experiments.reporting.cifar100_table import FAST
from sparse_embed.experiments.training.run import Run
from sparse_embed.flags import app, training
from sparse_embed.flags.train_config import TrainConfig

RESULTS = pathlib.Path(__file__).parents[3] / "results" / "cifar100"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Six training and two test images of each of the 100 classes, each class of its own colour."""
    folder = tmp_path_factory.mktemp("cifar")
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (100, 3, 1))
    for name, per_class in (("train", 6), ("test", 2)):
        labels = np.tile(np.arange(100), per_class)
        images = colours[labels] + rng.normal(0, 20, (len(labels), 3, 1024))
        pixels = np.clip(images, 0, 255).astype(np.uint8).reshape(len(labels), 3072)
        content = {b"data": pixels, b"fine_labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(content, 2))
    names = [b"class %d" % i for i in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": names}, 2))
    return folder


def call(capfd, *arguments):
    with flagsaver.flagsaver():
        absl_flags.FLAGS(["cifar100", *arguments])
        cifar100.main()
    return capfd.readouterr().out


def test_trains_evaluates_and_reports_what_is_missing(archive, tmp_path, capfd):
    arguments = [f"--data_dir={archive}", f"--run_dir={tmp_path}"]
    short = ["--steps=3", "--width=0.1", "--batch_size=50", "--validation=2", "--seed=7"]
    first = call(capfd, *arguments, *short, "--only=fast_dense")
    folder = tmp_path / "cifar100"
    done = json.loads((folder / "steps.json").read_text())
    assert list(done) == ["train cifar100 fast_dense", "evaluate cifar100 fast_dense"]
    (record,) = records.load(folder / "records", "cifar100")
    train = record["flags"]["train"]
    assert train["model"]["warm_start"] is None
    assert (train["optimization"]["steps"], train["optimization"]["seed"]) == (3, 7)
    assert (record["method"], record["model"], record["chosen"]) == ("dense", "fast_dense", True)
    assert [row["step"] for row in record["curve"]] == [3]
    assert record["train_seconds"] > 0
    assert str(tmp_path) not in json.dumps(record)

    again = call(capfd, *arguments, *short, "--only=fast_dense")
    assert json.loads((folder / "steps.json").read_text()) == done  # nothing was run
    # Both print the same table, as does --report_only; precision is in percent, F is d.
    assert first == again
    assert call(capfd, "--report_only", f"--results={folder}") == first
    rows = first.splitlines()
    assert rows[2].startswith("dense ")
    for paper, name in (("57.31", "precision_at_4_test"), ("56.95", "precision_at_16_test")):
        assert f"{paper} / {100 * record[name]:.2f}" in rows[2]
    assert "64.00 / 64.00" in rows[2]
    assert "0.40 / -" in rows[6]

    # Few images: the first ones of the official order.
    (tmp_path / "few").mkdir()
    evaluate_run(Run.open(folder / "fast_dense"), str(archive), tmp_path / "few", None, images=30)
    (few,) = records.load(tmp_path / "few")
    assert (few["queries"], few["flags"]["images"]) == (30, 30)
    assert record["queries"] == 200
    hits, all_hits = (
        records.load_arrays(path, found)["train_hits"]
        for path, found in ((tmp_path / "few", few), (folder / "records", record))
    )
    assert len(hits) == 30
    assert hits.sum() < all_hits[:30].sum()  # at most one training image of a class is among 30

    # Other flags are refused by the run that has ended; nothing is trained again.
    with pytest.raises(Failure, match="step 'train cifar100 fast_dense' ended with exit code 2"):
        call(capfd, *arguments, *short, "--only=fast_dense", "--seed=8")
    assert "--seed was 7, now 8" in capfd.readouterr().err


def test_unknown_model_is_told_with_the_choices(archive, tmp_path, capfd):
    with pytest.raises(UsageError, match=r"--only=vgg: expected some of dense, .*fast_l1"):
        call(capfd, f"--data_dir={archive}", f"--run_dir={tmp_path}", "--only=vgg")


def test_of_a_path_the_best_within_the_limit_is_chosen(tmp_path):
    metrics = {"1": (0.9, 0.60), "2": (0.4, 0.50), "4": (0.3, 0.55), "8": (0.1, 0.40)}
    (tmp_path / "train.json").write_text(json.dumps({"config": {}}))
    for weight, (flops, recall) in metrics.items():
        folder = tmp_path / "path" / f"lambda_{weight}"
        folder.mkdir(parents=True)
        row = {"evaluation_flops_per_row": flops, "recall_at_1": recall}
        (folder / "train.json").write_text(json.dumps({"config": {}, "curves": [{}, row]}))
    run = Run.open(tmp_path)
    assert chosen(run, 0.4).name == "lambda_4"
    assert chosen(run, 1.0).name == chosen(run, None).name == "lambda_1"
    assert chosen(run, 0.05).name == "lambda_8"
    assert chosen(Run.open(tmp_path / "path" / "lambda_1"), 0.4).name == "lambda_1"


RECORDED = records.load(RESULTS / "records")


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record["name"])
def test_recorded_runs_are_those_of_the_presets(record):
    recorded = TrainConfig.from_dict(record["flags"]["train"]).identity
    with flagsaver.flagsaver():
        preset = f"--preset=cifar100_{record['model']}"
        absl_flags.FLAGS(["train", *app.expand_presets([preset])])
        expected = training.train_config().identity
    # Where it starts from is an argument, and the weight is one of --reg_path.
    free = {"warm_start"} | ({"regularizer_weight"} if recorded["reg_path"] else set())
    assert {name: recorded[name] for name in recorded.keys() - free} == {
        name: expected[name] for name in expected.keys() - free
    }


def test_each_recorded_model_has_one_row_of_the_table():
    assert sorted(r["model"] for r in RECORDED if r["chosen"]) == sorted(FAST.models)
