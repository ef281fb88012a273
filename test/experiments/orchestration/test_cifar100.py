"""The CIFAR-100 table: the real scripts on a few images in the official layout, and the records."""

import json
import pathlib
import pickle

import numpy as np
import pytest
from helpers import call

from sparse_embed.common.failures import Failure, UsageError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.paper import FAST, OWN, PAPER, SERIES, SOFT
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.evaluation.cifar100 import evaluate_run
from sparse_embed.experiments.orchestration import cifar100_plan
from sparse_embed.experiments.orchestration.cifar100_plan import SEEDS, TARGETS
from sparse_embed.experiments.reporting import selection
from sparse_embed.experiments.reporting.cifar100_table import in_table
from sparse_embed.flags.options.train import preset_config
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


def shown(capfd, *arguments):
    call("reproduce", "--extent=cifar100", *arguments)
    return capfd.readouterr().out


def test_trains_evaluates_and_reports_what_is_missing(archive, tmp_path, capfd):
    arguments = [f"--data_dir={archive}", f"--run_dir={tmp_path}"]
    short = ["--train_flags=--steps=3,--width=0.1,--batch_size=50,--validation=2,--seed=7"]
    first = shown(capfd, *arguments, *short, "--only=fast_dense")
    folder = tmp_path / "cifar100"
    done = json.loads((folder / "steps.json").read_text())
    assert list(done) == ["train cifar100 fast_dense", "evaluate cifar100 fast_dense"]
    (record,) = records.load(folder / "records", "cifar100")
    train = record["flags"]["train"]
    assert train["model"]["warm_start"] is None
    assert (train["optimization"]["steps"], train["optimization"]["seed"]) == (3, 7)
    assert (record["method"], record["model"], record["seed"]) == ("dense", "fast_dense", 7)
    assert [row["step"] for row in record["curve"]] == [3]
    assert record["train_seconds"] > 0
    assert str(tmp_path) not in json.dumps(record)

    again = shown(capfd, *arguments, *short, "--only=fast_dense")
    assert json.loads((folder / "steps.json").read_text()) == done  # nothing was run
    # Both print the same table, as does the report; precision is in percent, F is d.
    assert first == again
    call("report", "--table=cifar100", f"--run_dir={folder}")
    assert capfd.readouterr().out == first
    rows = first.splitlines()
    assert rows[2].startswith("dense ")
    for paper, name in (("57.31", "precision_at_4_test"), ("56.95", "precision_at_16_test")):
        assert f"{paper} / {100 * record[name]:.2f}" in rows[2]
    assert "64.00 / 64.00" in rows[2]
    assert "0.40 / -" in rows[6]

    # Few images: the first ones of the official order.
    (tmp_path / "few").mkdir()
    evaluate_run(Run.open(folder / "fast_dense"), str(archive), tmp_path / "few", images=30)
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
        other = short[0].replace("--seed=7", "--seed=8")
        shown(capfd, *arguments, other, "--only=fast_dense")
    assert "--seed was 7, now 8" in capfd.readouterr().err


def test_unknown_model_is_told_with_the_choices(archive, tmp_path, capfd):
    with pytest.raises(UsageError, match=r"--only=vgg: expected some of dense, .*fast_l1"):
        shown(capfd, f"--data_dir={archive}", f"--run_dir={tmp_path}", "--only=vgg")


@pytest.mark.slow  # a minute: nine training runs
def test_heads_are_trained_on_features_with_several_seeds(archive, tmp_path, capfd, monkeypatch):
    """Two seeds and targets, in place of three and four."""
    monkeypatch.setattr(cifar100_plan, "SEEDS", (0, 1))
    monkeypatch.setattr(cifar100_plan, "TARGETS", (2.0, 4.0))
    flags = "--steps=3,--width=0.1,--batch_size=48,--validation=2,--warmup_steps=2"
    short = [f"--train_flags={flags}"]
    arguments = [f"--data_dir={archive}", f"--run_dir={tmp_path}", *short]
    table = shown(capfd, *arguments, "--only=fast_soft_flops")
    found = records.load(tmp_path / "cifar100" / "records")
    heads = [record for record in found if record["model"] == "fast_soft_flops"]
    made = sorted((record["setting"]["target_flops"], record["seed"]) for record in heads)
    assert made == [(2.0, 0), (2.0, 1), (4.0, 0), (4.0, 1)]
    assert {record["flags"]["train"]["model"]["activation"] for record in heads} == {
        "soft_threshold"
    }
    assert len({record["weights_crc32"] for record in heads}) == 4
    assert all(record["queries"] == 200 for record in found)
    # The table has mean and standard deviation over both seeds.
    group = in_table(found, SOFT, "flops")
    values = [100 * record["precision_at_4_test"] for record in group.records.values()]
    deviation = abs(values[0] - values[1]) / np.sqrt(2)
    assert f"55.23 / {np.mean(values):.2f}±{deviation:.2f}" in table


def test_validation_images_choose_the_best_within_the_papers_cost():
    """Its relaxed FLOPs have 0.40."""
    ends = {"a": (0.9, 0.60), "b": (0.4, 0.50), "c": (0.3, 0.55), "d": (0.1, 0.40)}
    found = [
        {
            "experiment": "cifar100",
            "model": "fast_flops",
            "seed": 0,
            "name": name,
            "curve": [{}, {"evaluation_flops_per_row": flops, "recall_at_1": recall}],
        }
        for name, (flops, recall) in ends.items()
    ]
    other = [{**record, "seed": 3} for record in found[:2]]
    chosen = in_table(found + other, FAST, "flops")
    assert {seed: record["name"] for seed, record in chosen.records.items()} == {0: "c", 3: "b"}
    assert in_table(found[:1], FAST, "flops")["name"] == "a"  # there is no other
    dear = [{**found[0], "name": "e", "curve": [{"evaluation_flops_per_row": 0.8}]}, found[0]]
    assert in_table(dear, FAST, "flops")["name"] == "e"  # the sparsest
    assert in_table(found, FAST, "l1") is None


RECORDED = selection.load(RESULTS)


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record["name"])
def test_recorded_runs_are_those_of_the_presets(record):
    recorded = TrainConfig.from_dict(record["flags"]["train"]).identity
    expected = preset_config(f"cifar100_{record['model']}").identity
    free = {"warm_start", "seed", "target_flops"}  # arguments
    assert {name: recorded[name] for name in recorded.keys() - free} == {
        name: expected[name] for name in expected.keys() - free
    }


def test_every_recorded_model_has_its_seeds_and_targets():
    for series in SERIES:
        for row in series.rows if series is not OWN else ():
            group = in_table(RECORDED, series, row)
            assert tuple(group.records) == (SEEDS if row in ("flops", "l1") else SEEDS[:1])
    for prefix in (FAST.prefix, SOFT.prefix):
        for row in ("flops", "l1"):
            some = [r for r in RECORDED if r["model"] == prefix + row]
            made = sorted((r["setting"]["target_flops"], r["seed"]) for r in some)
            assert made == [(target, seed) for target in TARGETS for seed in SEEDS]
            assert in_table(RECORDED, FAST, row)["flops_per_row"] < PAPER[row].metrics[0]
