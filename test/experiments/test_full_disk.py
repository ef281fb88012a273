"""A disk that fills up: one line, exit code 4, and what was finished before is whole."""

import resource
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.experiments.training import checkpoints

MOUNT = "mount -t tmpfs -o size={size} none {folder}"
TRAIN = (
    "train --dataset=dense_embeddings --model=linear --embedding_dim=2048 --data_dir={vectors} "
    "--summary_every=2 --checkpoint_every=2 --evaluate_every=2 --warmup_steps=1"
)


@pytest.fixture
def small_disk(tmp_path):
    """Runs a script with `tmp_path / "disk"` as a disk of `size`, which holds `files` at first.

    Returns stderr and what is on the disk afterwards. The disk exists only for that process.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    probe = MOUNT.format(size="64k", folder=shlex.quote(str(disk)))
    done = subprocess.run(["unshare", "-rm", "sh", "-c", probe], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no disk of our own can be mounted here: {done.stderr.strip()}")

    def run(size, command, files=None):
        copy = "" if files is None else f"cp -r {shlex.quote(str(files))}/. {disk} && "
        script = (
            f"{MOUNT.format(size=size, folder=disk)} && {copy}"
            f"{{ {sys.executable} -m sparse_embed.experiments.{command}; "
            f"code=$?; cp -r {disk} {tmp_path}/after; exit $code; }}"
        )
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True
        )
        after = tmp_path / "after"
        assert done.returncode == 4, done.stderr
        assert "Traceback" not in done.stderr
        last = done.stderr.strip().replace("\r", "\n").splitlines()[-1]
        assert last.startswith(f"{command.split()[0]}: {disk}"), done.stderr
        assert "No space left on device" in last
        assert not [*after.rglob("*.writing*")]
        return after

    return run


def test_checkpoint(small_disk, vectors, tmp_path):
    """The first one fits, the second does not: both have to be there before one can be replaced."""
    command = f"{TRAIN.format(vectors=vectors)} --steps=4 --model_dir={tmp_path}/disk"
    after = small_disk("2m", command)
    import h5py

    with h5py.File(after / "checkpoints" / checkpoints.LAST) as file:
        assert file.attrs["steps_trained"] == 2
    assert not (after / "train.json").exists()


def test_embeddings(small_disk, vectors, tmp_path):
    command = f"{TRAIN.format(vectors=vectors)} --steps=2 --model_dir={tmp_path}/run"
    arguments = [sys.executable, "-m", *f"sparse_embed.experiments.{command}".split()]
    subprocess.run(arguments, check=True, capture_output=True)
    old = tmp_path / "old"
    old.mkdir()
    (old / "rows.npz").write_bytes(b"old")
    embed = f"embed --model_dir={tmp_path}/run --split=train --output={tmp_path}/disk/rows.npz"
    assert (small_disk("1m", embed, old) / "rows.npz").read_bytes() == b"old"


@pytest.fixture
def photos(tmp_path):
    """Eight images of noise, 12 KiB each."""
    rng = np.random.default_rng(0)
    for number in range(8):
        file = tmp_path / "photos" / f"{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        file.write_bytes(tf.io.encode_png(pixels).numpy())
    return tmp_path / "photos"


def test_shards(small_disk, photos, tmp_path):
    after = small_disk(
        "72k",
        f"prepare_data --data_dir={photos} --dataset=image_folder --num_shards=4 "
        f"--shards_dir={tmp_path}/disk",
    )
    whole = [path for path in after.iterdir() if path.suffix == ".tfrecord"]
    assert 0 < len(whole) < 4
    for path in whole:
        assert sum(1 for _ in tf.data.TFRecordDataset(str(path))) == 2


def test_tensorflow_may_not_let_a_file_grow(photos, tmp_path):
    """It calls this an end of data, not a lack of disk."""
    folder = tmp_path / "shards"
    flags = f"--data_dir={photos} --dataset=image_folder --num_shards=4 --shards_dir={folder}"
    module = ["-m", "sparse_embed.experiments.prepare_data", *flags.split()]
    done = subprocess.run(
        [sys.executable, *module],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().replace("\r", "\n").splitlines()[-1]
    assert last.startswith(f"prepare_data: {folder}")
    assert last.endswith("File too large")
    assert not list(folder.glob("*.tfrecord"))


def test_report(small_disk, recorded_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(recorded_run, run)
    (run / "report.html").write_text("old")
    used = sum(path.stat().st_size // 4096 + 1 for path in run.rglob("*"))
    after = small_disk(f"{4 * used + 64}k", f"report --run_dir={tmp_path}/disk", run)
    assert (after / "report.html").read_text() == "old"
