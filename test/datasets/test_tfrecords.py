"""Shards: whole, resumable, and equal to what they were made from."""

import inspect
import json

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.common.failures import DataError
from sparse_embed.common.files import unfinished
from sparse_embed.datasets import image_folder, image_headers, tfrecords
from sparse_embed.datasets.examples import Examples, Part, shuffled, split_by_class

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


def test_training_batches_are_the_same_however_often_they_are_begun(photos, tmp_path):
    """`fit` begins them once or twice, other times in a resumed run than in an undisturbed one."""
    shards = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=3)
    batches = shards.training_batches(4, seed=1, buffer_size=6)
    first = collect(batches.take(9))
    assert collect(batches.take(9)) == first
    assert first != collect(shards.training_batches(4, seed=2, buffer_size=6).take(9))


def test_shards_are_a_part_like_any_other(photos, tmp_path):
    shards: Part = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=3)
    once = collect(shards.evaluation_batches(4))
    assert collect(shards.evaluation_batches(4, views=3, seed=5)) == once  # nothing is warped
    assert collect(shards.evaluation_batches(4, start=2, count=3)) == once[2:5]
    with pytest.raises(ValueError, match=r"pick: .* shards are read in the order of their files"):
        shards.training_batches(4, seed=0, pick=shuffled)
    for method in ("training_batches", "evaluation_batches"):
        wanted = inspect.signature(getattr(Part, method)).parameters.values()
        for kind in (Examples, tfrecords.Shards):
            given = inspect.signature(getattr(kind, method)).parameters.values()
            assert [*given][: len(wanted)] == [*wanted]


def test_parts_by_class_are_those_of_the_images(photos, tmp_path):
    """No class in two parts; each part has the images and labels of the same part of the source."""
    shards = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=3)
    for seed in range(4):
        wanted = split_by_class(photos, validation=1, test=1, seed=seed)
        found = split_by_class(shards, validation=1, test=1, seed=seed)
        for ours, source in zip(found, wanted, strict=True):
            assert (len(ours), ours.class_names) == (len(source), source.class_names)
            expected = sorted(collect(source.evaluation_batches(4)))
            assert sorted(collect(ours.evaluation_batches(4))) == expected
            drawn = ours.training_batches(5, seed=1, buffer_size=3)
            stream = collect(drawn.take(6))
            assert set(stream) <= set(expected)
            assert set(stream[: len(ours)]) | set(stream[-len(ours) :]) <= set(expected)
            later = ours.training_batches(5, seed=1, start_step=4, buffer_size=3)
            assert collect(later.take(2)) == stream[20:]


def test_a_part_of_a_part(photos, tmp_path):
    shards = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=2)
    part = shards.select(np.array([2, 1])).select(np.array([1]))
    assert (part.class_names, len(part), part.labels_of.tolist()) == (("class 2",), 3, [-1, -1, 0])
    assert sorted(collect(part.evaluation_batches(4))) == [(2, 0), (5, 0), (8, 0)]
    with pytest.raises(ValueError, match="photos: expected at least one example, got none"):
        part.select(np.zeros(0, int)).training_batches(2, seed=0)


def test_every_image_of_a_part_comes_in_each_pass(photos, tmp_path):
    shards = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=3)
    part = shards.select(np.array([0, 2]))
    passes = collect(part.training_batches(len(part), seed=0, buffer_size=1).take(2))
    assert sorted(passes[:7]) == sorted(passes[7:]) == sorted(collect(part.evaluation_batches(4)))


def test_shards_of_the_first_format_are_counted_once(photos, tmp_path, capfd):
    folder = tmp_path / "shards"
    whole = tfrecords.write_shards(photos, folder, num_shards=2)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["class_counts"] == [4, 4, 3]
    del manifest["class_counts"]
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    capfd.readouterr()
    for bar in (True, False):
        opened = tfrecords.open_shards(folder)
        assert opened.class_counts.tolist() == whole.class_counts.tolist()
        assert ("classes of photos" in capfd.readouterr().err) == bar
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    assert len(tfrecords.write_shards(photos, folder, num_shards=2)) == 11  # the same shards


def test_a_damaged_shard_is_named(photos, tmp_path):
    folder = tmp_path / "shards"
    shards = tfrecords.write_shards(photos, folder, num_shards=2)
    assert shards.damage() is None
    path = folder / "00001-of-00002.tfrecord"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert f"{path}: damaged: corrupted record at" in shards.damage()
    (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"00001-of-00002.tfrecord: damaged: corrupted record"):
        tfrecords.write_shards(photos, folder, num_shards=2)


def test_images_too_large_to_decode_are_refused_in_shards_too(photos, tmp_path, monkeypatch):
    shards = tfrecords.write_shards(photos, tmp_path / "shards", num_shards=2)
    monkeypatch.setattr(image_headers, "MAX_PIXELS", 63)
    for batches in (shards.evaluation_batches(4), shards.training_batches(4, seed=0)):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"DataError: .*shards: holds a broken image: PNG of 8 x 8 .* expected at most 63",
        ):
            next(iter(batches))


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


def test_what_a_call_left_that_was_killed_right_after_a_rename_goes_with_the_next(photos, tmp_path):
    tfrecords.write_shards(photos, tmp_path, num_shards=2)
    before = sorted(tmp_path.iterdir())
    unfinished(before[0]).parent.mkdir()
    tfrecords.write_shards(photos, tmp_path, num_shards=2)
    assert sorted(tmp_path.iterdir()) == before


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
    for content in (b"", b"{", b"\xff\xff", b"[1]"):
        (folder / "manifest.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"manifest\.json: expected "):
            tfrecords.open_shards(folder)
    (folder / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match=r"manifest.json: expected format 2"):
        tfrecords.open_shards(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_shards", None),
        ("num_shards", 0),
        ("num_shards", 10**12),
        ("num_shards", "2"),
        ("num_examples", -1),
        ("num_examples", 1.5),
        ("shape", 3),
        ("shape", [8, 8]),
        ("shape", [8, 8, 7]),
        ("shape", [8, 10**6, 3]),
        ("shape", ["8", 8, 3]),
        ("resize", "yes"),
        ("name", 3),
        ("class_names", []),
        ("class_names", 3),
        ("class_names", [1, 2, 3]),
        ("class_counts", None),
        ("class_counts", 3),
        ("class_counts", [1, 2]),
        ("class_counts", [-1, 5, 1]),
        ("format", [1]),
    ],
)
def test_a_damaged_manifest_is_refused_by_name(photos, tmp_path, key, value):
    tfrecords.write_shards(photos, tmp_path / "shards", num_shards=2)
    path = tmp_path / "shards" / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {key: value}))
    with pytest.raises(ValueError, match=r"manifest\.json: expected "):
        tfrecords.open_shards(path.parent)
    if key in ("name", "shape", "resize", "class_names", "num_shards"):
        path.write_text(json.dumps({name: content[name] for name in content if name != key}))
        with pytest.raises(DataError, match=rf"manifest\.json: '{key}' is missing"):
            tfrecords.open_shards(path.parent)
