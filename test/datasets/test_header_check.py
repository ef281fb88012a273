"""The look at all headers before training, and its cache."""

import io
import json
import os

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from sparse_embed.common.failures import DataError
from sparse_embed.datasets import header_check, image_folder
from sparse_embed.datasets.header_check import without_broken

SHAPE = (8, 8, 3)


def encode(kind: str, height: int, width: int, **options) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(header_check, "_FEW", 5)
    return tmp_path / "cache/sparse_embed"


@pytest.fixture
def photos(tmp_path):
    """Twelve images in three classes, of all formats."""
    kinds = ["png", "jpeg", "gif", "bmp"]
    for number in range(12):
        file = tmp_path / "photos" / f"class {number // 4}" / f"{number:02d}.{kinds[number % 4]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(kinds[number % 4].upper(), 9, 10))
    return tmp_path / "photos"


BROKEN = {
    "class 0/empty.png": b"",
    "class 0/text.jpg": b"not found",
    "class 1/bomb.png": b"",  # see below
    "class 1/cut.gif": b"GIF89a",
    "class 2/photo.webp.jpg": b"RIFF\x24\0\0\0WEBP",
}


@pytest.fixture
def broken(photos, huge_png):
    for name, data in BROKEN.items():
        (photos / name).write_bytes(data)
    (photos / "class 1/bomb.png").write_bytes(huge_png)
    return photos


def test_good_images_all_pass(photos, cache):
    examples = image_folder.load(photos, SHAPE)
    assert without_broken(examples) is examples


def test_the_first_broken_image_raises_with_its_path_and_the_count(broken, cache):
    with pytest.raises(DataError) as error:
        without_broken(image_folder.load(broken, SHAPE))
    path = broken / "class 0/empty.png"
    assert str(error.value) == (
        f"{path}: empty file (5 of 17 images are broken; on_error=skip leaves them out)"
    )


def test_broken_images_are_left_out_named_and_counted(broken, cache, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        examples = without_broken(image_folder.load(broken, SHAPE, "skip"))
    assert len(examples) == 12
    assert examples.num_classes == 3
    assert np.bincount(examples.labels).tolist() == [4, 4, 4]
    assert len(image_folder.kept_paths(examples)) == 12
    messages = [record.getMessage() for record in caplog.records]
    for name in BROKEN:
        assert sum(f"{broken / name}: " in message for message in messages) == 1
    assert messages[-1] == "photos: 5 of 17 images are broken and left out"
    seen = sum(len(labels) for _, labels in examples.evaluation_batches(4))
    assert seen == 12


def test_nothing_left_is_refused(photos, cache):
    for file in photos.glob("*/*"):
        file.write_bytes(b"x")
    with pytest.raises(DataError, match="12 of 12 images are broken"):
        without_broken(image_folder.load(photos, SHAPE, "skip"))


def test_headers_beyond_the_beginning_of_a_file_are_found(photos, cache):
    exif = b"Exif\0\0" + bytes(60_000)
    long = encode("JPEG", 9, 10, icc_profile=bytes(100_000), exif=exif)
    (photos / "class 0/long.jpg").write_bytes(long)
    assert len(without_broken(image_folder.load(photos, SHAPE))) == 13


def test_a_second_check_reads_no_image_unless_one_has_changed(broken, cache, monkeypatch):
    read = []
    check = image_folder.ImageFiles.check_header
    monkeypatch.setattr(
        image_folder.ImageFiles, "check_header", lambda s, row: read.append(row) or check(s, row)
    )

    def count(on_error="skip"):
        read.clear()
        examples = without_broken(image_folder.load(broken, SHAPE, on_error))
        return len(read), len(examples)

    assert count() == (17, 12)
    assert len(list(cache.iterdir())) == 1
    assert count() == (0, 12)
    with pytest.raises(DataError, match=r"empty.png: empty file \(5 of 17"):
        count("raise")
    assert not read
    (broken / "class 0/empty.png").write_bytes(encode("PNG", 5, 5))
    assert count() == (17, 13)
    file = broken / "class 1/04.png"
    data = file.read_bytes()
    file.write_bytes(b"\0" + data[1:])  # as long as before
    os.utime(file, ns=(1, 1))
    assert count() == (17, 12)
    (broken / "class 2/new.png").write_bytes(data)
    assert count() == (18, 13)


def test_a_damaged_or_forbidden_cache_does_no_harm(photos, cache, caplog):
    examples = image_folder.load(photos, SHAPE)
    without_broken(examples)
    (file,) = cache.iterdir()
    for text in ("{", "[]", '{"x": "y"}', "[" * 100_000):
        file.write_text(text)
        assert len(without_broken(examples)) == 12
        assert json.loads(file.read_text()) == {}
    file.unlink()
    cache.rmdir()
    cache.write_text("a file where the folder should be")
    with caplog.at_level("WARNING", logger="absl"):
        assert len(without_broken(examples)) == 12
    assert "is not cached" in caplog.records[-1].getMessage()


def test_what_the_file_system_refuses_is_not_remembered(photos, cache):
    examples = image_folder.load(photos, SHAPE, "skip")
    moved = examples.source.paths[3].rename(photos / "elsewhere")
    assert len(without_broken(examples)) == 11
    assert not cache.exists()
    moved.rename(examples.source.paths[3])
    assert len(without_broken(image_folder.load(photos, SHAPE))) == 12


def test_small_sets_leave_no_file(photos, cache, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    without_broken(image_folder.load(photos, SHAPE))
    assert not cache.exists()


def test_other_sources_are_refused(photos):
    examples = image_folder.load(photos, SHAPE)
    examples = type(examples)(
        "numbers", (1,), tf.constant([0.0]), np.arange(1), np.zeros(1, np.int32), ("a",)
    )
    with pytest.raises(ValueError, match="numbers: expected encoded images on disk"):
        without_broken(examples)
