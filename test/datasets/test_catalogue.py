"""Every data set through the one interface."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.datasets import catalogue, glyphs, image_folder, tfrecords


@pytest.fixture
def folders(tmp_path):
    """A small data set of each kind that needs files, by name."""
    names = [f"class {i}".encode() for i in range(100)]
    part = {b"data": np.zeros((200, 3072), np.uint8), b"fine_labels": list(range(100)) * 2}
    (tmp_path / "cifar100").mkdir()
    for name, value in (("train", part), ("test", part), ("meta", {b"fine_label_names": names})):
        (tmp_path / "cifar100" / name).write_bytes(pickle.dumps(value, 2))
    for number in range(12):
        file = tmp_path / "image_folder" / f"class {number % 4}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.io.encode_png(np.zeros((8, 8, 3), np.uint8)).numpy())
    images = image_folder.load(tmp_path / "image_folder", (8, 8, 3))
    tfrecords.write_shards(images, tmp_path / "tfrecords", num_shards=2)
    np.savez(
        tmp_path / "dense_embeddings.npz", embeddings=np.zeros((8, 5)), labels=np.arange(8) % 4
    )
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "shape", "sizes"),
    [
        (
            "cifar100",
            {"validation": 1},
            (32, 32, 3),
            {"train": 100, "validation": 100, "test": 200},
        ),
        ("image_folder", {"test": 1}, (8, 8, 3), {"train": 9, "test": 3}),
        ("tfrecords", {}, (8, 8, 3), {"train": 12}),
        (
            "dense_embeddings",
            {"test": 1, "validation": 1},
            (5,),
            dict(train=4, validation=2, test=2),
        ),
    ],
)
def test_all_alike(folders, name, options, shape, sizes):
    path = folders / (f"{name}.npz" if name == "dense_embeddings" else name)
    data = catalogue.load(name, path, image_size=(8, 8), **options)
    assert (data.name, data.shape) == (name, shape)
    assert {key: len(part) for key, part in data.parts.items()} == sizes
    train = data.parts["train"]
    images, labels = data.training_batches(train, batch_size=2, seed=0, start_step=1).element_spec
    assert (images.shape, images.dtype) == ((2, *shape), tf.float32)
    assert (labels.shape, labels.dtype) == ((2,), tf.int32)
    for part in data.parts.values():
        batches = list(data.evaluation_batches(part, 64).as_numpy_iterator())
        found = np.concatenate([labels for _, labels in batches])
        assert len(found) == len(part)
        assert set(found) == set(range(part.num_classes))


def test_record_file(shared):
    data = catalogue.load("recordio", shared / "recordio", test=1)
    assert data.shape == (112, 112, 3)
    assert {key: part.num_classes for key, part in data.parts.items()} == {"train": 2, "test": 1}


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="name='mnist': expected one of glyphs, cifar100"):
        catalogue.load("mnist", tmp_path)
    with pytest.raises(ValueError, match="data_dir=None: cifar100 has to be told"):
        catalogue.load("cifar100")


def test_glyphs(monkeypatch):
    # 500 classes of one blank image each, since drawing the real ones takes seconds.
    blank = glyphs.Glyphs(
        images=np.zeros((500, 32, 32), np.uint8),
        labels=np.arange(500, dtype=np.int32),
        code_points=np.arange(500, dtype=np.int32),
        fonts=("one",),
        font_ids=np.zeros(500, np.int32),
    )
    monkeypatch.setattr(glyphs, "load", lambda cache_dir: blank)
    data = catalogue.load("glyphs", validation=3, test=5, views=2)
    assert data.shape == (32, 32, 1)
    assert {key: part.num_classes for key, part in data.parts.items()} == {
        "train": 92,
        "validation": 3,
        "test": 5,
        "distractors": 400,
    }
    images, _ = data.training_batches(data.parts["train"], batch_size=2, seed=0).element_spec
    assert images.shape == (2, 32, 32, 1)
    found = [labels for _, labels in data.evaluation_batches(data.parts["test"], 16)]
    assert np.concatenate(found).tolist() == [0, 1, 2, 3, 4] * 2
