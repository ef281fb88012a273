"""Your own images: any size and kind, and broken ones."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.common.failures import DataError
from sparse_embed.datasets import image_folder

SHAPE = (12, 10, 3)


def ramp(height: int, width: int, channels: int) -> np.ndarray:
    """Brightness rises from left to right as the pixels' centres go, so that scaling keeps it."""
    row = (np.arange(width) + 0.5) / width * 255
    return np.tile(row[None, :, None], (height, 1, channels)).astype(np.uint8)


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    files = {
        "cat/colour.jpg": tf.io.encode_jpeg(ramp(12, 10, 3), quality=100),
        "cat/large.png": tf.io.encode_png(ramp(240, 200, 3)),
        "cat/wide.JPEG": tf.io.encode_jpeg(ramp(40, 100, 3), quality=100),
        "dog/grey.jpg": tf.io.encode_jpeg(ramp(30, 25, 1), quality=100),
        "dog/grey.png": tf.io.encode_png(ramp(6, 5, 1)),
    }
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data.numpy())
    (root / "dog/notes.txt").write_text("no image")
    (root / "empty").mkdir()
    return root


def collect(examples, batch_size=2):
    batches = list(examples.evaluation_batches(batch_size).as_numpy_iterator())
    return np.concatenate([b[0] for b in batches]), np.concatenate([b[1] for b in batches])


def test_folder_per_class(photos):
    examples = image_folder.load(photos, SHAPE)
    assert examples.class_names == ("cat", "dog")
    names = [path.name for path in examples.source.paths]
    assert names == ["colour.jpg", "large.png", "wide.JPEG", "grey.jpg", "grey.png"]
    images, labels = collect(examples)
    assert labels.tolist() == [0, 0, 0, 1, 1]
    assert images.shape == (5, *SHAPE)
    expected = ramp(12, 10, 3) / 255
    for place in (0, 1, 3):  # same proportions: the same picture at another size
        np.testing.assert_allclose(images[place], expected, atol=0.03)
    # 40 x 100 is scaled to 12 x 30; its middle third is cut out.
    np.testing.assert_allclose(images[2], ramp(12, 30, 3)[:, 10:20] / 255, atol=0.03)
    assert (images[4, :, 0] < images[4, :, -1]).all()


def test_folders_within_folders_are_classes_by_their_path(tmp_path, caplog):
    for name in ("greek/alpha", "greek/beta", "latin/alpha", "digits"):
        (tmp_path / "letters" / name).mkdir(parents=True)
        for number in range(2):
            file = tmp_path / "letters" / name / f"{number}.png"
            file.write_bytes(tf.io.encode_png(ramp(4, 4, 1)).numpy())
    with caplog.at_level("WARNING", logger="absl"):
        examples = image_folder.load(tmp_path / "letters", SHAPE)
    assert examples.class_names == ("digits", "greek/alpha", "greek/beta", "latin/alpha")
    assert examples.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    (message,) = [record.getMessage() for record in caplog.records]
    assert "3 of 4 classes are folders within folders, such as greek/alpha" in message


def test_one_level_needs_no_warning(photos, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        assert image_folder.load(photos, SHAPE).class_names == ("cat", "dog")
    assert not caplog.records


def test_images_beside_folders_of_images_are_refused(photos):
    (photos / "cat/young/very").mkdir(parents=True)
    image_folder.load(photos, SHAPE)  # without images, they are no class
    (photos / "cat/young/very/1.png").write_bytes((photos / "dog/grey.png").read_bytes())
    with pytest.raises(
        DataError, match="photos/cat: holds images and, in young/very, more of them"
    ):
        image_folder.load(photos, SHAPE)
    assert len(image_folder.load_flat(photos, SHAPE)) == 6  # which knows no classes


def test_hidden_files_are_ignored_and_links_are_followed_once(photos):
    (photos / "cat/._colour.jpg").write_bytes(b"what a Mac leaves")
    (photos / ".thumbnails").mkdir()
    (photos / ".thumbnails/1.png").write_bytes(b"")
    (photos / "linked").symlink_to(photos / "dog")
    (photos / "empty/loop").symlink_to(photos)
    examples = image_folder.load(photos, SHAPE)
    assert examples.class_names == ("cat", "dog", "linked")
    assert np.bincount(examples.labels).tolist() == [3, 2, 2]


def test_mirroring_is_an_option(photos):
    assert image_folder.load(photos, SHAPE).augment is not None
    examples = image_folder.load(photos, SHAPE, mirror=False)
    for images, _ in examples.training_batches(8, seed=0).take(4):  # dark left, bright right
        assert (images[:, :, 0] < images[:, :, -1]).numpy().all()


def test_grey_output(photos):
    images, _ = collect(image_folder.load(photos, (12, 10, 1)))
    assert images.shape == (5, 12, 10, 1)


def test_flat_folder(photos):
    examples = image_folder.load_flat(photos, SHAPE)
    assert [path.name for path in examples.source.paths] == [
        *("colour.jpg", "large.png", "wide.JPEG", "grey.jpg", "grey.png")
    ]
    assert examples.labels.tolist() == [-1] * 5
    assert examples.num_classes == 0


def test_broken_images_are_refused_by_path(photos):
    (photos / "cat/broken.jpg").write_bytes(b"\xff\xd8 no JPEG")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"cat/broken.jpg: cannot be decoded"):
        collect(image_folder.load(photos, SHAPE))


def test_broken_images_are_skipped_counted_and_named(photos):
    (photos / "cat/broken.jpg").write_bytes(b"\xff\xd8 no JPEG")
    (photos / "dog/empty.png").write_bytes(b"")
    whole = (photos / "cat/colour.jpg").read_bytes()
    (photos / "dog/truncated.jpg").write_bytes(whole[: len(whole) // 2])
    examples = image_folder.load(photos, SHAPE, on_error="skip")
    (photos / "dog/grey.png").unlink()  # found, but gone when it is read
    images, labels = collect(examples)
    assert labels.tolist() == [0, 0, 0, 1]
    assert [path.name for path in image_folder.kept_paths(examples)] == [
        *("colour.jpg", "large.png", "wide.JPEG", "grey.jpg")
    ]
    assert len(images) == 4
    failures = examples.source.failures
    reasons = {examples.source.paths[row].name: reason for row, reason in failures.items()}
    assert sorted(reasons) == ["broken.jpg", "empty.png", "grey.png", "truncated.jpg"]
    assert "empty file" in reasons["empty.png"]
    assert "No such file" in reasons["grey.png"]
    assert all(name in reason for name, reason in reasons.items())


def test_broken_images_are_skipped_where_evaluation_warps_too(photos):
    (photos / "cat/broken.jpg").write_bytes(b"\xff\xd8 no JPEG")
    examples = image_folder.load(photos, SHAPE, on_error="skip")
    clean, _ = collect(examples)
    examples = dataclasses.replace(examples, view=lambda images, _: tf.cast(images, tf.float32) + 1)
    images, labels = zip(*examples.evaluation_batches(2, views=2), strict=True)
    assert np.concatenate(labels).tolist() == [0, 0, 0, 1, 1] * 2
    np.testing.assert_allclose(np.concatenate(images), np.tile(clean * 255 + 1, (2, 1, 1, 1)), 1e-6)
    assert sum(len(labels) for _, labels in examples.stream(20, 8, seed=0)) == 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: (root / "stray.png").write_bytes(b"x"), "stray.png: expected images only"),
        (lambda root: None, "expected sub-folders with images"),
    ],
)
def test_other_folders_are_refused(tmp_path, make, message):
    make(tmp_path)
    with pytest.raises(ValueError, match=message):
        image_folder.load(tmp_path, SHAPE)


def test_bad_arguments_are_named(photos):
    with pytest.raises(ValueError, match="on_error='ignore': expected one of raise, skip"):
        image_folder.load(photos, SHAPE, on_error="ignore")
    with pytest.raises(ValueError, match=r"image_shape=\(8, 8, 2\)"):
        image_folder.load(photos, (8, 8, 2))
