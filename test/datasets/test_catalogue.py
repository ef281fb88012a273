"""Every data set through the one interface."""

import dataclasses
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.common.failures import DataError
from sparse_embed.common.options import option
from sparse_embed.datasets import catalogue, glyphs, image_folder, tfrecords
from sparse_embed.datasets.catalogue import Cifar100Options, DataSet, ImageFolderOptions, NoOptions
from sparse_embed.datasets.examples import ArraySource, Examples


@pytest.fixture
def folders(tmp_path):
    """A small data set of each kind that needs files, by name."""
    names = [f"class {i}".encode() for i in range(100)]
    part = {b"data": np.full((200, 3072), 9, np.uint8), b"fine_labels": list(range(100)) * 2}
    (tmp_path / "cifar100").mkdir()
    for name, value in (("train", part), ("test", part), ("meta", {b"fine_label_names": names})):
        (tmp_path / "cifar100" / name).write_bytes(pickle.dumps(value, 2))
    for number in range(12):
        file = tmp_path / "image_folder" / f"class {number % 4}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.io.encode_png(np.zeros((8, 8, 3), np.uint8)).numpy())
    images = image_folder.load(tmp_path / "image_folder", (8, 8, 3))
    tfrecords.write_shards(images, tmp_path / "tfrecords", num_shards=2)
    np.save(tmp_path / "dense_embeddings", np.zeros((8, 5), np.float16))
    np.save(tmp_path / "dense_embeddings.labels.npy", np.arange(8) % 4)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "arguments", "shape", "sizes"),
    [
        (
            "cifar100",
            {"validation": 1},
            (32, 32, 3),
            {"train": 100, "validation": 100, "test": 200},
        ),
        (
            "image_folder",
            {"test": 1, "options": ImageFolderOptions(image_size=9)},
            (9, 9, 3),
            {"train": 9, "test": 3},
        ),
        ("tfrecords", {}, (8, 8, 3), {"train": 12}),
        (
            "tfrecords",
            {"test": 1, "validation": 1},
            (8, 8, 3),
            {"train": 6, "validation": 3, "test": 3},
        ),
        (
            "dense_embeddings",
            {"test": 1, "validation": 1},
            (5,),
            {"train": 4, "validation": 2, "test": 2},
        ),
    ],
)
def test_all_alike(folders, name, arguments, shape, sizes):
    path = folders / (f"{name}.npy" if name == "dense_embeddings" else name)
    parts = catalogue.load(name, path, **arguments)
    assert {key: len(part) for key, part in parts.items()} == sizes
    batches = parts["train"].training_batches(batch_size=2, seed=0, start_step=1)
    images, labels = batches.element_spec
    assert (images.shape, images.dtype) == ((2, *shape), tf.float32)
    assert (labels.shape, labels.dtype) == ((2,), tf.int32)
    for part in parts.values():
        assert part.shape == shape
        found = np.concatenate([labels for _, labels in part.evaluation_batches(64, views=3)])
        assert len(found) == len(part)
        assert set(found) == set(range(part.num_classes))


def test_record_file(shared):
    parts = catalogue.load("recordio", shared / "recordio", test=1)
    assert parts["train"].shape == (112, 112, 3)
    assert {key: part.num_classes for key, part in parts.items()} == {"train": 2, "test": 1}


def test_which_classes_go_where_follows_the_seed(folders):
    path = folders / "dense_embeddings.npy"
    tested = [
        catalogue.load("dense_embeddings", path, test=1, seed=seed)["test"].class_names
        for seed in range(8)
    ]
    assert len(set(tested)) > 1
    assert catalogue.load("dense_embeddings", path, test=1, seed=3)["test"].class_names == tested[3]


def test_options_reach_the_data_set(folders):
    """Images of the value 9 stay as they are, unless black comes in from a side."""
    lowest = {}
    for shift in (0, 4):
        parts = catalogue.load("cifar100", folders / "cifar100", options=Cifar100Options(shift))
        ((images, _),) = parts["train"].training_batches(64, seed=0).take(1)
        lowest[shift] = round(float(tf.reduce_min(images)) * 255)
    assert lowest == {0: 9, 4: 0}
    assert catalogue.load("image_folder", folders / "image_folder")["train"].shape == (112, 112, 3)


def test_shards_are_split_like_what_they_were_made_from(folders):
    for seed in range(5):
        sizes = {"validation": 1, "test": 1, "seed": seed}
        wanted = catalogue.load("image_folder", folders / "image_folder", **sizes)
        found = catalogue.load("tfrecords", folders / "tfrecords", **sizes)
        for name in ("train", "validation", "test"):
            assert found[name].class_names == wanted[name].class_names


def test_mirroring_can_be_turned_off(folders):
    """Images that are dark on the left stay so without it, in every data set that mirrors."""
    ramp = np.tile(np.arange(32, dtype=np.uint8)[None, :, None] * 8, (32, 1, 3))
    for file in (folders / "image_folder").glob("*/*.png"):
        file.write_bytes(tf.io.encode_png(ramp).numpy())
    images = image_folder.load(folders / "image_folder", (32, 32, 3))
    tfrecords.write_shards(images, folders / "mirror", num_shards=1)
    part = {b"data": np.tile(ramp.transpose(2, 0, 1).ravel(), (100, 1))}
    part[b"fine_labels"] = list(range(100))
    (folders / "cifar100/train").write_bytes(pickle.dumps(part, 2))
    for name, path, more in (
        ("image_folder", "image_folder", {"image_size": 32}),
        ("tfrecords", "mirror", {}),
        ("cifar100", "cifar100", {"largest_shift": 0}),
    ):
        mirrored = {}
        for mirror in (True, False):
            options = catalogue.DATASETS[name].options(mirror=mirror, **more)
            part = catalogue.load(name, folders / path, options=options)["train"]
            ((drawn, _),) = part.training_batches(64, seed=0).take(1)
            mirrored[mirror] = int(tf.reduce_sum(tf.cast(drawn[:, 0, 0, 0] > 0.5, tf.int32)))
        assert 16 < mirrored[True] < 48, name
        assert mirrored[False] == 0, name


def test_broken_images_are_found_before_training(folders, caplog):
    broken = folders / "image_folder/class 2/6.png"
    broken.write_bytes(b"no image")
    with pytest.raises(
        DataError, match=r"6.png: cannot be decoded: .* \(1 of 12 images are broken"
    ):
        catalogue.load("image_folder", folders / "image_folder")
    options = ImageFolderOptions(8, on_error="skip")
    with caplog.at_level("WARNING", logger="absl"):
        parts = catalogue.load("image_folder", folders / "image_folder", test=1, options=options)
    assert sum(map(len, parts.values())) == 11
    messages = [record.getMessage() for record in caplog.records]
    assert "6.png: cannot be decoded" in messages[0]
    assert "1 of 12 images are broken and left out" in messages[-1]


def test_every_option_has_a_help_that_names_the_data_set():
    fields = {
        (name, field.name, field.default): field.metadata
        for name, row in catalogue.DATASETS.items()
        for field in dataclasses.fields(row.options)
    }
    mirroring = ("cifar100", "recordio", "tfrecords", "image_folder")
    assert set(fields) == {
        ("cifar100", "largest_shift", 4),
        ("image_folder", "image_size", 112),
        ("words", "word_classes", 20_000),
        *((name, "mirror", True) for name in mirroring),
        *((name, "on_error", "raise") for name in ("image_folder", "recordio")),
    }
    for (name, _, default), metadata in fields.items():
        assert name in metadata["help"]
        assert metadata["lower"] is not None or type(default) is not int
    assert all(row.help for row in catalogue.DATASETS.values())


def test_a_data_set_of_your_own_is_one_row(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class ToyOptions:
        dim: int = option(3, "Dimensions.", lower=1)

    def load_toy(data_dir, options, validation, test, seed):
        assert (data_dir, validation, test, seed) == ("here", 1, 2, 5)
        vectors = np.zeros((6, options.dim), np.float32)
        labels = np.arange(6, dtype=np.int32)
        toy = Examples(
            "toy", (options.dim,), ArraySource(vectors), np.arange(6), labels, tuple("abcdef")
        )
        return {"train": toy, "odd": toy.take(labels % 2 == 1), "empty": toy.take(labels > 9)}

    monkeypatch.setitem(catalogue.DATASETS, "toy", DataSet(load_toy, ToyOptions))
    parts = catalogue.load("toy", "here", 1, 2, 5)
    assert {name: len(part) for name, part in parts.items()} == {"train": 6, "odd": 3}
    assert parts["train"].shape == (3,)
    parts = catalogue.load("toy", "here", 1, 2, 5, options=ToyOptions(dim=7))
    assert parts["train"].shape == (7,)

    nothing = DataSet(lambda *_: {"train": parts["train"].take(np.zeros(0, int))})
    monkeypatch.setitem(catalogue.DATASETS, "nothing", nothing)
    with pytest.raises(ValueError, match="nothing: expected examples to train on, got none"):
        catalogue.load("nothing", "here")


def test_mistakes_are_named(folders):
    with pytest.raises(ValueError, match="name='mnist': expected one of glyphs, words, cifar100"):
        catalogue.load("mnist", folders)
    with pytest.raises(
        ValueError, match="data_dir=None: expected the path of the files of cifar100"
    ):
        catalogue.load("cifar100")
    with pytest.raises(ValueError, match=r"options=NoOptions\(\): expected ImageFolderOptions"):
        catalogue.load("image_folder", folders / "image_folder", options=NoOptions())
    with pytest.raises(ValueError, match=r"validation=1, test=3: expected fewer classes in all"):
        catalogue.load("tfrecords", folders / "tfrecords", validation=1, test=3)


def test_glyphs(monkeypatch):
    # Classes of one blank image each, since drawing the real ones takes seconds.
    def blank(count):
        numbers = np.arange(count, dtype=np.int32)
        images = np.zeros((count, 32, 32), np.uint8)
        return glyphs._from_arrays(images, numbers, numbers, np.array(["one"]), 0 * numbers)

    asked = []
    monkeypatch.setattr(glyphs, "load", lambda cache_dir: asked.append(cache_dir) or blank(1800))
    parts = catalogue.load("glyphs", "cache", validation=3, test=5)
    sizes = {"train": 1392, "validation": 3, "test": 5, "distractors": 400}
    assert {key: part.num_classes for key, part in parts.items()} == sizes
    images, _ = parts["train"].training_batches(batch_size=2, seed=0).element_spec
    assert images.shape == (2, 32, 32, 1)
    found = [labels for _, labels in parts["test"].evaluation_batches(16, views=2)]
    assert np.concatenate(found).tolist() == [0, 1, 2, 3, 4] * 2
    parts = catalogue.load("glyphs")  # without a data_dir, and with sizes of their own
    sizes = {"train": 66, "validation": 200, "test": 1134, "distractors": 400}
    assert {key: part.num_classes for key, part in parts.items()} == sizes
    assert asked == ["cache", None]


def test_the_table_is_light():
    """Flags are made of it, so its import must not take seconds."""
    program = (
        "import sys; from sparse_embed.datasets import catalogue; "
        "print({'tensorflow', 'keras', 'matplotlib'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout.strip() == "set()"
