"""The paper's own presets learn the same on 1, 2 and 4 devices, if these share one global batch.

Compared after two steps of the real training loop, the second with the whole penalty: the mean loss
and penalty of both steps, and everything in the checkpoint. That is the encoder's weights, the
class matrix of ArcFace, the moving averages of the batch norms, which are synchronised, and the
momenta, which after two steps are a sum of both gradients. The backbone computes in float64;
ResNet-101 has its full depth, but no dropout: its mask is random, and another on other devices.
"""

import json
import os
import pathlib
import subprocess
import sys

import h5py
import numpy as np
import pytest
from PIL import Image

RUNS = {
    "quick": {"mobilefacenet_flops_300": (1, 2), "resnet101_l1_3.0": (1, 2)},
    "slow": {
        "mobilefacenet_flops_300": (1, 4),
        "mobilefacenet_l1_2.0": (1, 2),
        "mobilefacenet_dense512": (1, 2),
        "resnet101_flops_100": (1, 4),
    },
}
# Two minutes on 2 cores, of which the slow runs take more than one.
PAIRS = pytest.mark.parametrize(
    ("folder", "name", "devices"),
    [
        pytest.param(kind, name, counts[-1], marks=[pytest.mark.slow] if kind == "slow" else [])
        for kind, runs in RUNS.items()
        for name, counts in runs.items()
    ],
    indirect=["folder"],
)
# Of the largest value in an array; and beside it, since the gradient of a shift before a batch norm
# is nothing but rounding, as are the averages of what such a norm has centred.
RELATIVE, MOMENTUM, VALUE = 1e-5, 1e-9, 1e-7


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """Trains every preset of a kind, in one process per number of devices."""
    runs = RUNS[request.param]
    folder = tmp_path_factory.mktemp("devices")
    rng = np.random.default_rng(0)
    for number in range(12):
        (folder / "images" / f"class{number:02}").mkdir(parents=True)
        for place in range(4):
            pixels = rng.integers(0, 256, (16, 16, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "images" / f"class{number:02}" / f"{place}.png")
    script = pathlib.Path(__file__).with_name("device_runs.py")
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    variables |= {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    for devices in (1, 2, 4):
        names = [name for name, counts in runs.items() if devices in counts]
        if not names:
            continue
        done = subprocess.run(
            [sys.executable, script, folder, str(devices), folder / "images", *names],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-4000:]
    return folder


def read_record(folder, name, devices):
    return json.loads((folder / name / str(devices) / "train.json").read_text())


def read_state(folder, name, devices):
    """Everything in the checkpoint, by its path there."""
    found = {}

    def keep(path, item):
        if isinstance(item, h5py.Dataset):
            found[path] = item[()]

    checkpoint = folder / name / str(devices) / "checkpoints" / "last.weights.h5"
    with h5py.File(checkpoint) as file:
        file.visititems(keep)
    return found


def largest_excess(expected, found):
    """The largest difference, as a multiple of the allowed one, and where."""
    assert expected.keys() == found.keys()
    excesses = {}
    for path, values in expected.items():
        floor = MOMENTUM if path.startswith("optimizer") else VALUE
        allowed = RELATIVE * np.abs(values).max() + floor
        excesses[path] = np.abs(values.astype(float) - found[path]).max() / allowed
    return max((excess, path) for path, excess in excesses.items())


@PAIRS
def test_loss_and_penalty_equal_those_of_one_device(folder, name, devices):
    one, many = (read_record(folder, name, count) for count in (1, devices))
    assert (one["replicas"], many["replicas"]) == (1, devices)
    (row,), (expected,) = many["curves"], one["curves"]
    assert row["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    if "dense" not in name:
        assert row["penalty"] == pytest.approx(expected["penalty"], rel=1e-5)
        assert expected["penalty_loss"] > 0.5


@PAIRS
def test_weights_statistics_and_gradients_equal_those_of_one_device(folder, name, devices):
    one, many = (read_state(folder, name, count) for count in (1, devices))
    momenta = [values for path, values in one.items() if path.startswith("optimizer")]
    # Most momenta are far above what is allowed beside the relative error.
    large = [np.abs(values).max() > 100 * MOMENTUM for values in momenta]
    assert np.mean(large) > 0.6  # others are shifts before a norm
    excess, path = largest_excess(one, many)
    assert excess < 1, path
