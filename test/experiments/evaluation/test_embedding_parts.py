"""Embedding in parts: the rows of `embed`, resumable, with broken images listed."""

import importlib.util
import json
import pathlib
import resource
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import psutil
import pytest
import scipy.sparse
from PIL import Image

from sparse_embed.common.failures import Failure, UsageError
from sparse_embed.common.files import unfinished
from sparse_embed.datasets import image_folder
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core import run as runs
from sparse_embed.experiments.core.part_files import FAILED, divide
from sparse_embed.experiments.encoders.embedding import embed, examples_at_once
from sparse_embed.experiments.evaluation.embedding_parts import Parts, Work
from sparse_embed.experiments.evaluation.ray_embedding import Workers
from sparse_embed.flags.train_config import ModelConfig, TrainConfig
from sparse_embed.models import build_encoder

SHAPE = (16, 16, 3)
BROKEN = [3, 300, 301]  # one in the first part, two in the second


def make_run(folder, seed=0, shape=SHAPE, width=0.25, activation="relu"):
    """A run whose encoder was never trained, which is as good here."""
    keras.utils.set_random_seed(seed)
    start = {"initial_probability": 0.2} if activation == "relu" else {}
    encoder = build_encoder("convnet", 32, activation, shape, width=width, **start)
    config = TrainConfig(model=ModelConfig("convnet", embedding_dim=32, activation=activation))
    runs.save(folder, encoder, {"config": config.to_dict()})
    return folder


def make_images(folder, count, broken=(), shape=SHAPE):
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number:05}.png"
        if number in broken:
            path.write_bytes(b"\x89PNG, or so it says")
        else:
            Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path)
    return folder


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images") / "images", 600, BROKEN)


def expected(run_folder, images, shape=SHAPE):
    """The rows that `embed` gives, in one go."""
    examples = image_folder.load_flat(images, shape, on_error="skip")
    encoder = runs.Run.open(run_folder).encoder()
    batches = examples.evaluation_batches(examples_at_once(shape))
    return embed(encoder, batches, sparse=True, quiet=True)[0]


def all_rows(folder):
    files = sorted(folder.glob("part-*.npz"))
    return scipy.sparse.vstack([embedding_files.load(path).vectors for path in files], format="csr")


def embed_missing(work):
    """What the script does with --workers=0; returns the parts that it embedded."""
    parts = Parts(work)
    parts.open_folder()
    todo = [number for number in range(len(parts.spans)) if parts.outcome(number) is None]
    for number in todo:
        parts.embed(number)
    return todo, parts.finish()


def test_division():
    assert [*divide(0, 256)] == []
    assert [*divide(256, 256)] == [range(256)]
    assert [*divide(600, 256)] == [range(256), range(256, 512), range(512, 600)]


def test_parts_hold_the_rows_of_embed(run_folder, images, tmp_path):
    work = Work(run_folder, tmp_path, image_folder=images, part_examples=256)
    assert embed_missing(work) == ([0, 1, 2], (597, 3))
    rows, wanted = all_rows(tmp_path), expected(run_folder, images)
    assert rows.shape == (597, 32)
    # Batches begin elsewhere, so that the encoder may round otherwise.
    np.testing.assert_allclose(rows.toarray(), wanted.toarray(), atol=1e-5)
    second = embedding_files.load(tmp_path / "part-00001.npz").provenance
    assert (second["first"], second["examples"], second["failed"]) == (256, 256, [300, 301])
    listed = [json.loads(line) for line in (tmp_path / FAILED).read_text().splitlines()]
    assert [example["example"] for example in listed] == BROKEN
    assert [pathlib.Path(example["input"]).stem for example in listed] == [
        "00003",
        "00300",
        "00301",
    ]
    assert all("cannot be decoded" in example["reason"] for example in listed)
    assert (tmp_path / "inputs.txt").read_text().splitlines()[300] == "00300.png"


def test_dense_parts(images, tmp_path):
    run_folder = make_run(tmp_path / "run", activation="none")
    work = Work(run_folder, tmp_path / "parts", image_folder=images, part_examples=256)
    assert embed_missing(work) == ([0, 1, 2], (597, 3))
    assert embed_missing(work) == ([], (597, 3))
    assert len(embedding_files.load(tmp_path / "parts" / "part-00001.npy").vectors) == 254


def test_what_is_there_is_not_embedded_again(run_folder, images, tmp_path):
    """An absent, a damaged and a foreign part are; the whole is the same."""
    work = Work(run_folder, tmp_path, image_folder=images, part_examples=256)
    embed_missing(work)
    before = all_rows(tmp_path)
    assert embed_missing(work)[0] == []
    (tmp_path / "part-00002.npz").unlink()
    assert embed_missing(work) == ([2], (597, 3))
    damaged = tmp_path / "part-00001.npz"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert embed_missing(work)[0] == [1]
    (tmp_path / "part-00000.npz").write_bytes((tmp_path / "part-00001.npz").read_bytes())
    assert embed_missing(work)[0] == [0]
    assert (all_rows(tmp_path) != before).nnz == 0


@pytest.mark.parametrize("activation", ["relu", "none"])
def test_what_a_kill_between_renames_left_goes_with_the_next_call(activation, images, tmp_path):
    """Of a dense part the rows have their name by then, the labels not yet."""
    run_folder = make_run(tmp_path / "run", activation=activation)
    work = Work(run_folder, tmp_path / "parts", image_folder=images, part_examples=256)
    embed_missing(work)
    whole = sorted(work.output.iterdir())
    name = "part-00001.npz" if activation == "relu" else "part-00001.labels.npy"
    half = unfinished(work.output / name)
    half.parent.mkdir()
    if activation == "none":
        (work.output / name).rename(half)
    assert embed_missing(work) == ([1] if activation == "none" else [], (597, 3))
    assert sorted(work.output.iterdir()) == whole


@pytest.mark.parametrize("change", ["encoder", "content", "part_examples"])
def test_a_folder_of_another_setting_is_refused(change, run_folder, images, tmp_path):
    work = Work(run_folder, tmp_path / "parts", image_folder=images, part_examples=512)
    Parts(work).open_folder()
    changed = {
        "encoder": lambda: {"model_dir": make_run(tmp_path / "run", seed=1)},
        "content": lambda: {"image_folder": images.parent},
        "part_examples": lambda: {"part_examples": 256},
    }
    other = Parts(Work(**{**vars(work), **changed[change]()}))
    with pytest.raises(UsageError, match=f"--parts_dir=.*another {change}$"):
        other.open_folder()


def test_a_part_may_fail_as_a_whole_but_not_all_of_them(run_folder, tmp_path):
    some = make_images(tmp_path / "some", 6, range(4))
    work = Work(run_folder, tmp_path / "a", image_folder=some, part_examples=4)
    assert embed_missing(work) == ([0, 1], (2, 4))
    assert embed_missing(work)[0] == []
    assert [path.name for path in (tmp_path / "a").glob("part-*.npz")] == ["part-00001.npz"]
    none = make_images(tmp_path / "none", 4, range(4))
    work = Work(run_folder, tmp_path / "b", image_folder=none, part_examples=256)
    with pytest.raises(Failure, match=r"all 4 examples failed, such as .*00000\.png"):
        embed_missing(work)


def test_a_part_that_cannot_be_read_now_is_not_taken_for_absent(run_folder, images, tmp_path):
    """Too many files are open: to embed it again would cost much, and hide why."""
    parts = Parts(Work(run_folder, tmp_path, image_folder=images, part_examples=8, count=16))
    parts.open_folder()
    parts.embed(1)
    assert parts.outcome(1).rows == 8
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            parts.outcome(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert parts.outcome(1).rows == 8


def test_without_the_extra_one_line_names_it(run_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"ray.*pip install 'sparse-embed\[distributed\]'"):
        Workers(Work(run_folder, tmp_path), 2)


@pytest.mark.engines
def test_more_workers_than_cores_are_refused(run_folder, images, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: `make test-engines` installs it")
    work = Work(run_folder, tmp_path, image_folder=images)
    with pytest.raises(UsageError, match=r"--workers=9999, .*: Ray has \d+ cores"):
        Workers(work, 9999).__enter__()


@pytest.mark.engines
def test_a_killed_worker_is_replaced(tmp_path):
    """kill -9 of a worker while it embeds: its part is embedded again, and all are right."""
    pytest.importorskip("ray", reason="ray is not installed: `make test-engines` installs it")
    shape = (64, 64, 3)
    run_folder = make_run(tmp_path / "run", shape=shape, width=1.0)
    images = make_images(tmp_path / "images", 1100, [700], shape)
    output = tmp_path / "parts"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "sparse_embed.experiments.embed_parts", "--workers=2"),
            *(f"--model_dir={run_folder}", f"--image_folder={images}", f"--parts_dir={output}"),
            "--part_examples=256",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    killed = None
    deadline = time.monotonic() + 120
    while not killed and process.poll() is None and time.monotonic() < deadline:
        found = [
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if "ray::Worker.embed" in " ".join(child.cmdline())
        ]
        if found:
            time.sleep(0.2)  # in the middle
            found[0].send_signal(signal.SIGKILL)
            killed = found[0].pid
        time.sleep(0.02)
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert killed is not None
    assert "5 parts, 5 to embed" in printed
    assert f"{output}: 1,099 rows, 1 examples failed" in printed
    wanted = expected(run_folder, images, shape)
    np.testing.assert_allclose(all_rows(output).toarray(), wanted.toarray(), atol=1e-4)
