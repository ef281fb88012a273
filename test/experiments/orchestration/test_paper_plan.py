"""The paper's own experiments: what a rehearsal leaves out, and the data that both need."""

import dataclasses
import subprocess
import sys

import pytest
from helpers import call

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.orchestration import paper_plan
from sparse_embed.experiments.orchestration.paper_size import REHEARSAL, WHOLE
from sparse_embed.experiments.training.checks import check
from sparse_embed.flags import app
from sparse_embed.flags.app import preset_flags
from sparse_embed.flags.options.train import Options

SIZES = {"paper": WHOLE, "rehearsal": REHEARSAL}
LAMBDAS_LEFT_OUT = {
    "mobilefacenet": "flops_300 flops_400 flops_600 l1_2.0 l1_2.7 l1_3.5",
    "resnet101": "flops_100 flops_200 flops_630 l1_3.0 l1_5.0 l1_6.0",
}


@pytest.fixture
def plans(tmp_path):
    data, _ = paper_plan.find_data(tmp_path / "data")
    return {name: paper_plan.paper(tmp_path / "run", data, size) for name, size in SIZES.items()}


def test_weights_of_the_paper_are_those_of_the_presets():
    assert list(paper_plan.weights("resnet101").values()) == [50, 100, 200, 630, 2, 3, 5, 6]
    assert list(paper_plan.weights("mobilefacenet", lambdas=2)) == [
        *("flops_200", "flops_300"),
        *("l1_1.5", "l1_2.0"),
    ]


def test_a_rehearsal_has_every_step_but_those_of_the_lambdas_left_out(plans):
    whole, small = ([step.name for step in plans[size]] for size in SIZES)
    left_out = {
        f"{kind} {network} {run}{pack}"
        for network, runs in LAMBDAS_LEFT_OUT.items()
        for run in runs.split()
        for kind, pack in (
            ("train", ""),
            ("embed", ""),
            ("verify", " lfw"),
            ("verify", " agedb_30"),
        )
    }
    assert left_out < set(whole)
    assert small == [name for name in whole if name not in left_out]
    # Both in the same way: the same scripts with the same flags, but for the sizes.
    commands = {step.name: step.arguments for step in plans["paper"]}
    for step in plans["rehearsal"]:
        if step.name.startswith(("fit", "compare")):  # these name the runs that were left out
            assert step.arguments[:2] == commands[step.name][:2]
            continue
        sizes = set(step.arguments) - set(commands[step.name])
        assert set(commands[step.name]) <= set(step.arguments)
        names = {flag.partition("=")[0] for flag in sizes}
        assert names <= {
            *("--steps", "--summary_every", "--batch_size", "--decay_steps"),
            *("--warmup_steps", "--validation", "--most_images"),
        }


def test_each_kind_of_step_is_there_for_both_networks(plans):
    names = [step.name for step in plans["rehearsal"]]
    kinds = {network: [] for network in ("mobilefacenet", "resnet101", "cifar100")}
    for name in names:
        kind, network, *_ = name.split()
        kinds[network].append(kind)
    faces = {"train": 5, "embed": 5, "verify": 8, "fit": 1, "compare": 1}
    for network in ("mobilefacenet", "resnet101"):
        assert {kind: kinds[network].count(kind) for kind in faces} == faces
    models = ["dense", "sdh_k1", "sdh_k2", "sdh_k3", "flops", "l1"]
    assert names[-12:-6] == [f"train cifar100 {model}" for model in models]
    assert names[-6:] == [f"evaluate cifar100 {model}" for model in models]


@pytest.mark.parametrize("size", SIZES)
def test_flags_of_every_training_run_fit_together(plans, size):
    for step in plans[size]:
        if not step.name.startswith("train"):
            continue
        preset = step.arguments[2]
        own = [
            word
            for word in step.arguments[3:]
            if not word.startswith(("--warm_start", "--model_dir"))
        ]
        config = app.parse(Options, [preset, *own]).config
        check(config)  # raises
        if size == "rehearsal":
            assert config.optimization.steps == config.ends[-1] == 4
            assert config.objective.warmup_steps <= 4 or config.objective.regularizer == "none"
        # Networks are the paper's, whatever the size.
        whole = preset_flags(preset.partition("=")[2])
        assert (config.model.model, config.model.width) == (whole["model"], 1.0)
        assert config.model.embedding_dim == int(whole["embedding_dim"])


def test_only_hashing_starts_from_the_dense_model_on_cifar100(plans):
    starts = {step.name for step in plans["paper"] if "--warm_start" in " ".join(step.arguments)}
    assert starts == {
        *("train mobilefacenet sdh", "train resnet101 sdh"),
        *(f"train cifar100 sdh_k{k}" for k in (1, 2, 3)),
    }


def test_train_flags_come_last_in_every_training_run(tmp_path):
    data, _ = paper_plan.find_data(tmp_path)
    for size in (WHOLE, REHEARSAL):
        size = dataclasses.replace(size, train_flags=("--steps=9", "--seed=3"), lambdas=2)
        steps = paper_plan.paper(tmp_path, data, size)
        runs = [step for step in steps if step.name.startswith("train")]
        assert len(runs) == 2 * 7 + 6
        for step in runs:
            assert step.arguments[-3:-1] == ("--steps=9", "--seed=3")
        (fitted,) = [step for step in steps if step.name == "fit resnet101"]
        assert fitted.needs == ("train resnet101 flops_100",)


def fill(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_the_largest_list_of_distractors_is_taken(tmp_path):
    names = [f"megaface_features_list.json_{n}" for n in ("10_1", "100000_1", "100000_2", "x_1")]
    fill(tmp_path / "megaface", *names)
    data, missing = paper_plan.find_data(tmp_path)
    assert data.distractors == tmp_path / "megaface" / "megaface_features_list.json_100000_1"
    assert data.distractors not in missing
    fill(tmp_path / "megaface", "megaface_features_list.json_1000000_1")
    data, _ = paper_plan.find_data(tmp_path)
    assert data.distractors.name.endswith("_1000000_1")


@pytest.mark.parametrize("name", ["", ".tar.gz", ".tar.xz"])
def test_cifar100_is_found_as_folder_and_as_archive(tmp_path, name):
    fill(tmp_path, f"cifar-100-python{name}")
    data, missing = paper_plan.find_data(tmp_path)
    assert data.cifar100 == tmp_path / f"cifar-100-python{name}"
    assert data.cifar100 not in missing


def test_cifar100_may_be_elsewhere(tmp_path):
    fill(tmp_path, "cifar-100-python.tar.gz", "other.tar.xz")
    data, missing = paper_plan.find_data(tmp_path, tmp_path / "other.tar.xz")
    assert data.cifar100 == tmp_path / "other.tar.xz"
    assert data.cifar100 not in missing
    _, missing = paper_plan.find_data(tmp_path, tmp_path / "none.tar.xz")
    assert tmp_path / "none.tar.xz" in missing


@pytest.mark.parametrize("extent", ["paper", "rehearsal"])
def test_what_is_missing_is_said_and_where_to_put_it(tmp_path, extent):
    data = tmp_path / "data"
    fill(data, "faces_emore/train.rec")
    command = [sys.executable, "-m", "sparse_embed.experiments.reproduce", f"--extent={extent}"]
    command += [f"--data_root={data}", f"--run_dir={tmp_path / 'runs'}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    lines = result.stderr.strip().splitlines()
    assert f"missing: {data / 'megaface' / 'facescrub_aligned'} (folder of" in result.stderr
    assert "train.rec (" not in result.stderr
    assert len(lines) == len(paper_plan.FILES)  # all but one, and the summary
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("flag", ["--train_flags=--steps=3", "--lambdas=1", "--cifar100=x"])
def test_flags_of_the_paper_are_refused_elsewhere(tmp_path, flag):
    with pytest.raises(UsageError, match="Unknown command line flag"):
        call("reproduce", "--extent=quick", f"--run_dir={tmp_path}", flag)
