"""Your own images: any size and kind, and broken ones."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

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
        "cat/deep/large.png": tf.io.encode_png(ramp(240, 200, 3)),
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
