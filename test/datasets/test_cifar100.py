"""CIFAR-100: the real archive, and small ones in its layout."""

import io
import pickle
import tarfile

import numpy as np
import pytest

from sparse_embed.common.failures import DataError
from sparse_embed.datasets import cifar100

NAMES = [f"class {i}".encode() for i in range(100)]


def part(per_class: int, seed: int) -> dict[bytes, object]:
    count = 100 * per_class
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 3072), np.uint8)
    return {
        b"data": pixels,
        b"fine_labels": [i % 100 for i in range(count)],
        b"filenames": [b"x.png"] * count,
    }


def contents(**changes) -> dict[str, bytes]:
    values = {"train": part(3, 0), "test": part(1, 1), "meta": {b"fine_label_names": NAMES}}
    return {name: pickle.dumps(value, 2) for name, value in (values | changes).items()}


def write_archive(path, files):
    with tarfile.open(path, f"w:{path.suffix[1:]}") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def write_folder(folder, files):
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="session")
def real(shared):
    return cifar100.load(shared / "datasets/cifar-100-python.tar.xz")


def test_real_counts(real):
    assert (len(real.train), len(real.validation), len(real.test)) == (50000, 0, 10000)
    assert np.bincount(real.train.labels).tolist() == [500] * 100
    assert np.bincount(real.test.labels).tolist() == [100] * 100
    assert real.train.class_names[:3] == ("apple", "aquarium_fish", "baby")


def test_real_images_are_the_right_way_up(real):
    """Rows of a photograph are alike, as are columns; colours are apart.

    With the axes mixed up, neighbouring values would not be neighbouring pixels.
    """
    ((images, _),) = real.test.evaluation_batches(500).take(1).as_numpy_iterator()
    down = np.abs(np.diff(images, axis=1)).mean()
    across = np.abs(np.diff(images, axis=2)).mean()
    anything = np.abs(images - images[::-1, ::-1, ::-1]).mean()
    assert max(down, across) < 0.3 * anything


@pytest.mark.parametrize("suffix", ["folder", "tar.gz", "tar.xz", "tar.bz2"])
def test_folder_and_archives_are_alike(tmp_path, suffix):
    files = contents()
    if suffix == "folder":
        path = write_folder(tmp_path, files)
    else:
        path = write_archive(tmp_path / f"cifar-100-python.{suffix}", files)
    parts = cifar100.load(path)
    assert (len(parts.train), len(parts.test)) == (300, 100)
    ((images, labels),) = parts.test.evaluation_batches(100).as_numpy_iterator()
    assert labels.tolist() == list(range(100))
    # The layout has 1,024 red values, then green, then blue, each row by row.
    raw = part(1, 1)[b"data"]
    assert np.round(images[7, 2, 5] * 255).tolist() == [
        raw[7, channel * 1024 + 2 * 32 + 5] for channel in range(3)
    ]


def test_validation_is_held_out_of_training(tmp_path):
    parts = cifar100.load(write_folder(tmp_path, contents()), validation_per_class=1, seed=4)
    assert np.bincount(parts.train.labels).tolist() == [2] * 100
    assert np.bincount(parts.validation.labels).tolist() == [1] * 100
    assert not set(parts.train.rows) & set(parts.validation.rows)


def test_training_is_shifted_and_mirrored(tmp_path):
    parts = cifar100.load(write_folder(tmp_path, contents(train=part(1, 0))))
    batches = parts.train.training_batches(100, seed=0).take(1).as_numpy_iterator()
    ((images, labels),) = batches
    assert images.shape == (100, 32, 32, 3)
    originals = part(1, 0)[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    unchanged = 0
    for image, label in zip(np.round(images * 255), labels, strict=True):
        window = image[8:24, 8:24]  # is in the original within 4 pixels, perhaps mirrored
        places = [
            (dy, dx, step)
            for step in (1, -1)
            for dy in range(-4, 5)
            for dx in range(-4, 5)
            if (originals[label][:, ::step][8 + dy : 24 + dy, 8 + dx : 24 + dx] == window).all()
        ]
        assert len(places) == 1
        unchanged += places[0] == (0, 0, 1)
    assert unchanged < 10


def test_without_shifts_images_are_mirrored_only(tmp_path):
    parts = cifar100.load(write_folder(tmp_path, contents(train=part(1, 0))), largest_shift=0)
    ((images, labels),) = parts.train.training_batches(100, seed=0).take(1)
    originals = part(1, 0)[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)[labels]
    pixels = np.round(images.numpy() * 255)
    same = (pixels == originals).all(axis=(1, 2, 3))
    mirrored = (pixels == originals[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (same ^ mirrored).all()
    assert 30 < same.sum() < 70


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": []}, "train: expected a dict"),
        ({"meta": {}}, "meta: expected `fine_label_names` to be a list of bytes"),
        (
            {"meta": {b"fine_label_names": NAMES[:99]}},
            "meta: expected 100 fine_label_names, got 99",
        ),
        ({"meta": {b"fine_label_names": ["text"] * 100}}, "meta: .* a list of bytes"),
        ({"meta": {b"fine_label_names": 3}}, "meta: .* a list of bytes"),
        ({"meta": {b"fine_label_names": [b"\xff"] * 100}}, "meta: .* in UTF-8"),
        ({"train": {b"data": 3, b"x": [300] * 1_000_001}}, "train: more than 1,000,000 opcodes"),
        ({"test": part(0, 0)}, "test: expected `data`"),
        ({"train": part(1, 0) | {b"fine_labels": [0]}}, "train: expected `fine_labels`"),
        ({"test": part(1, 0) | {b"fine_labels": [100] * 100}}, "labels from 0 to 99"),
        ({"test": part(1, 0) | {b"data": np.zeros((5, 9), np.uint8)}}, r"array of \(n, 3072\)"),
        ({"test": part(1, 0) | {b"data": print}}, "print is not admitted"),
    ],
)
def test_other_content_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        cifar100.load(write_folder(tmp_path, contents(**changes)))


def test_other_paths_are_refused(tmp_path):
    with pytest.raises(ValueError, match="largest_shift=-1: expected an integer >= 0"):
        cifar100.load(tmp_path, largest_shift=-1)
    with pytest.raises(ValueError, match="train is missing"):
        cifar100.load(tmp_path)
    (tmp_path / "x.tar.gz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"x\.tar\.gz: expected a tar archive: "):
        cifar100.load(tmp_path / "x.tar.gz")
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(ValueError, match="train is not in the archive"):
        cifar100.load(tmp_path / "empty.tar")


def test_a_file_larger_than_the_data_set_is_refused_before_it_is_read(tmp_path):
    folder = write_folder(tmp_path, contents())
    with open(folder / "train", "ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="train: 1,099,511,627,776 bytes: expected at most 332,800"):
        cifar100.load(folder)


def test_a_damaged_archive_is_refused_by_name(tmp_path):
    path = write_archive(tmp_path / "x.tar.gz", contents())
    whole = path.read_bytes()
    for length in range(0, len(whole), len(whole) // 20):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"x\.tar\.gz: (expected a tar archive|train is not)"):
            cifar100.load(path)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1  # in the pixels: only the checksum at the end can tell
    path.write_bytes(flipped)
    with pytest.raises(DataError, match=r"x\.tar\.gz: expected a tar archive: "):
        cifar100.load(path)
