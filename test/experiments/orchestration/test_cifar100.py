"""The CIFAR-100 table: the real scripts on a few images in the official layout, and the records."""

import json
import pathlib
import pickle

import numpy as np
import pytest
from absl import flags as absl_flags
from absl.testing import flagsaver

from sparse_embed.experiments import cifar100
from sparse_embed.flags import app

RESULTS = pathlib.Path(__file__).parents[2] / "results" / "cifar100"


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
    results = tmp_path / "results"
    arguments = [f"--data_dir={archive}", f"--run_dir={tmp_path}", f"--results={results}"]
    short = ["--steps=3", "--width=0.1", "--batch_size=50", "--validation=2", "--seed=7"]
    first = call(capfd, *arguments, *short, "--only=fast_dense")
    assert first.count("$ python") == 2  # the training and its evaluation
    record = json.loads((results / "fast_dense.json").read_text())
    assert record["flags"]["warm_start"] is None
    assert {"steps": 3, "seed": 7, "loss": "arcface"}.items() <= record["flags"].items()
    assert [row["step"] for row in record["curve"]] == [3]
    assert str(tmp_path) not in (results / "fast_dense.json").read_text()

    again = call(capfd, *arguments, *short, "--only=fast_dense")
    assert again.count("done before") == 1
    assert "unchanged" in again
    # Both print the same table, as does --report_only; precision is in percent, F is d.
    assert first.splitlines()[-8:] == again.splitlines()[-8:]
    rows = call(capfd, "--report_only", f"--results={results}").splitlines()
    assert rows == first.splitlines()[-8:]
    assert rows[2].startswith("dense ")
    for paper, name in (("57.31", "precision_at_4_test"), ("56.95", "precision_at_16_test")):
        assert f"{paper} / {100 * record['figures'][name]:.2f}" in rows[2]
    assert "64.00 / 64.00" in rows[2]
    assert "0.40 / -" in rows[6]


def test_unknown_model_is_told_with_the_choices(archive, tmp_path, capfd):
    with pytest.raises(app.UsageError, match=r"--only=vgg: expected some of fast_dense, .*fast_l1"):
        call(capfd, f"--data_dir={archive}", f"--run_dir={tmp_path}", "--only=vgg")


def test_of_a_path_the_best_within_the_limit_is_chosen(tmp_path):
    figures = {"1": (0.9, 0.60), "2": (0.4, 0.50), "4": (0.3, 0.55), "8": (0.1, 0.40)}
    for weight, (flops, recall) in figures.items():
        folder = tmp_path / "path" / f"lambda_{weight}"
        folder.mkdir(parents=True)
        row = {"evaluation_flops_per_row": flops, "recall_at_1": recall}
        (folder / "train.json").write_text(json.dumps({"curves": [{}, row]}))
    assert cifar100.chosen(tmp_path, limit=0.4).name == "lambda_4"
    assert cifar100.chosen(tmp_path, limit=1.0).name == "lambda_1"
    assert cifar100.chosen(tmp_path, limit=0.05).name == "lambda_8"
    assert cifar100.chosen(tmp_path / "path" / "lambda_1", 0.4).name == "lambda_1"


def test_records_of_a_path_have_the_chosen_weight_and_all_others(tmp_path):
    model_dir = tmp_path / "path" / "lambda_4"
    model_dir.mkdir(parents=True)
    config = {"data": {"data_dir": "/home/me"}, "model": {"warm_start": "/home/me/fast_dense"}}
    run = {"config": config, "seconds": 5.0, "weights_crc32": "0", "curves": [], "provenance": {}}
    (model_dir / "train.json").write_text(json.dumps(run))
    found = {
        f"lambda_{weight}": {
            "setting": {"weight": weight},
            "flops_per_row": flops,
            "precision_at_4_test": 0.5,
            "queries": 7,
        }
        for weight, flops in ((2, 0.6), (4, 0.4))
    }
    cifar100.save_small(tmp_path / "fast_l1.json", model_dir, found)
    assert "/home/me" not in (tmp_path / "fast_l1.json").read_text()
    one, *path = cifar100.load_results(tmp_path)
    assert (one["experiment"], one["name"], one["flops_per_row"]) == ("cifar100", "fast_l1", 0.4)
    assert {record["experiment"] for record in path} == {"cifar100 path"}
    assert [(point["weight"], point["flops_per_row"]) for point in path] == [(4, 0.4), (2, 0.6)]
    assert "queries" not in path[0]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_runs_are_those_of_the_presets(path):
    recorded = json.loads(path.read_text())["flags"]
    with flagsaver.flagsaver():
        absl_flags.FLAGS(["train", f"--flagfile={app.preset_path(f'cifar100_{path.stem}')}"])
        preset = {name: absl_flags.FLAGS[name].value for name in recorded}
    # Where it starts from is an argument, and the weight is one of --reg_path, chosen later.
    free = {"warm_start"} | ({"regularizer_weight"} if recorded["reg_path"] else set())
    assert {name: recorded[name] for name in recorded.keys() - free} == {
        name: preset[name] for name in preset.keys() - free
    }
