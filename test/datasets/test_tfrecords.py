"""Shards: whole, resumable, and equal to what they were made from."""

import inspect
import json

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.datasets import image_folder, tfrecords
from sparse_embed.datasets.examples import Examples, Part, shuffled

SHAPE = (8, 8, 3)


@pytest.fixture
def photos(tmp_path):
    """Eleven images in three classes; all pixels of image i have the value 20 i."""
    for number in range(11):
        file = tmp_path / "photos" / f"class {number % 3}" / f"{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.io.encode_png(np.full(SHAPE, 20 * number, np.uint8)).numpy())
    return image_folder.load(tmp_path / "photos", SHAPE, on_error="skip")


def collect(batches):
    """Returns (number of the image, label) of every image."""
    return [
        (round(float(image[0, 0, 0]) * 255 / 20), int(label))
        for images, labels in batches.as_numpy_iterator()
        for image, label in zip(images, labels, strict=True)
    ]


def test_shards_hold_every_image_once(photos, tmp_path):
    shards = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=3)
    assert (len(shards), shards.num_classes, shards.shape) == (11, 3, SHAPE)
    assert sorted(path.name for path in (tmp_path / "shards").iterdir()) == [
        *(f"0000{i}-of-00003.tfrecord" for i in range(3)),
        "manifest.json",
    ]
    expected = [(number, number % 3) for number in range(11)]
    assert sorted(collect(shards.evaluation_batches(4))) == expected

    def training(start_step=0):
        return shards.training_batches(11, seed=1, start_step=start_step, buffer_size=4)

    assert training().element_spec[0].shape == (11, *SHAPE)
    passes = collect(training().take(3))
    assert set(passes) == set(expected)
    assert passes[:11] != passes[11:22]
    assert collect(training().take(3)) == passes
    assert collect(training(start_step=2).take(1)) == passes[22:]


def test_shards_are_a_part_like_any_other(photos, tmp_path):
    shards: Part = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=3)
    once = collect(shards.evaluation_batches(4))
    assert collect(shards.evaluation_batches(4, views=3, seed=5)) == once  # nothing is warped
    with pytest.raises(ValueError, match=r"pick: .* shards are read in the order of their files"):
        shards.training_batches(4, seed=0, pick=shuffled)
    for method in ("training_batches", "evaluation_batches"):
        wanted = inspect.signature(getattr(Part, method)).parameters.values()
        for kind in (Examples, tfrecords.Shards):
            given = inspect.signature(getattr(kind, method)).parameters.values()
            assert [*given][: len(wanted)] == [*wanted]


def test_conversion_goes_on_where_it_stopped(photos, tmp_path, monkeypatch):
    folder = tmp_path / "shards"
    check, seen = type(photos.source).check, []

    def stopping(self, row):
        seen.append(row)
        if len(seen) > 7:
            raise KeyboardInterrupt
        return check(self, row)

    monkeypatch.setattr(type(photos.source), "check", stopping)
    with pytest.raises(KeyboardInterrupt):
        tfrecords.write_shards(photos, folder, num_shards=3)
    done = sorted(folder.glob("*.tfrecord"))
    assert len(done) == 1
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    with pytest.raises(ValueError, match="unfinished conversion"):
        tfrecords.open_shards(folder)

    (folder / ".00001-of-00003.killed.tfrecord").write_bytes(b"what a killed run leaves")
    before = done[0].stat().st_mtime_ns
    seen.clear()
    monkeypatch.setattr(
        type(photos.source), "check", lambda s, row: seen.append(row) or check(s, row)
    )
    shards = tfrecords.write_shards(photos, folder, num_shards=3)
    assert len(shards) == 11
    assert len(seen) == 7  # the first shard, of 4 images, was not made again
    assert done[0].stat().st_mtime_ns == before
    assert len(list(folder.iterdir())) == 4
    numbers = sorted(number for number, _ in collect(shards.evaluation_batches(4)))
    assert numbers == list(range(11))


def test_broken_images_do_not_get_into_shards(photos, tmp_path):
    photos.source.paths[5].write_bytes(b"broken")
    shards = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=2)
    assert len(shards) == 10
    assert list(photos.source.failures) == [5]
    assert len(collect(shards.evaluation_batches(4))) == 10


def test_other_shards_are_not_mixed_in(photos, tmp_path):
    tfrecords.write_shards(photos, tmp_path / "shards", num_shards=2)
    with pytest.raises(ValueError, match="holds other shards: num_shards is 2, expected 3"):
        tfrecords.write_shards(photos, tmp_path / "shards", num_shards=3)
    with pytest.raises(ValueError, match="holds other shards: content"):
        tfrecords.write_shards(photos.take(np.arange(5)), tmp_path / "shards", num_shards=2)
    with pytest.raises(ValueError, match="num_shards=12"):
        tfrecords.write_shards(photos, tmp_path / "more", num_shards=12)


def test_damaged_folders_are_refused(photos, tmp_path):
    with pytest.raises(ValueError, match="expected shards, found none"):
        tfrecords.open_shards(tmp_path)
    folder = tmp_path / "shards"
    tfrecords.write_shards(photos, folder, num_shards=2)
    (folder / "00001-of-00002.tfrecord").unlink()
    with pytest.raises(ValueError, match=r"00001-of-00002.tfrecord: this shard is missing"):
        tfrecords.open_shards(folder)
    (folder / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match=r"manifest.json: expected format 1"):
        tfrecords.open_shards(folder)
