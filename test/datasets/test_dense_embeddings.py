"""Dense embeddings with labels."""

import numpy as np
import pytest

from sparse_embed.common.failures import DataError
from sparse_embed.datasets import catalogue, dense_embeddings
from sparse_embed.datasets.examples import split_by_class

EMBEDDINGS = np.random.default_rng(0).normal(size=(6, 4))


def test_faces_of_a_real_encoder(shared):
    path = shared / "faces/lfw_dlib128.npz"
    examples = dense_embeddings.load(path)
    assert (len(examples), examples.num_classes, examples.shape) == (13233, 5749, (128,))
    part = split_by_class(examples, test=2875)
    assert (part.train.num_classes, part.test.num_classes) == (2874, 2875)
    assert not set(part.train.class_names) & set(part.test.class_names)
    assert len(part.train) + len(part.test) == 13233
    batches = part.test.evaluation_batches(1000).as_numpy_iterator()
    stored = np.load(path)
    rows, start = part.test.rows, 0
    for embeddings, labels in batches:
        chosen = rows[start : start + len(labels)]
        np.testing.assert_array_equal(embeddings, stored["embeddings"][chosen])
        names = [part.test.class_names[label] for label in labels]
        assert names == stored["identities"][stored["labels"][chosen]].tolist()
        start += len(labels)
    assert start == len(part.test)


def test_npy_with_string_labels(tmp_path):
    np.save(tmp_path / "x.npy", EMBEDDINGS)
    np.save(tmp_path / "y.npy", np.array(["b", "a", "b", "c", "a", "a"]))
    examples = dense_embeddings.load(tmp_path / "x.npy", tmp_path / "y.npy")
    assert examples.class_names == ("a", "b", "c")
    assert examples.labels.tolist() == [1, 0, 1, 2, 0, 0]
    ((embeddings, _),) = examples.evaluation_batches(6).as_numpy_iterator()
    np.testing.assert_array_equal(embeddings, EMBEDDINGS.astype(np.float32))
    assert examples.training_batches(2, seed=0).element_spec[0].shape == (2, 4)


def test_integer_labels_need_not_be_dense(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=EMBEDDINGS, labels=[7, -1, 7, 100, -1, 7])
    examples = dense_embeddings.load(tmp_path / "x.npz")
    assert examples.labels.tolist() == [1, 0, 1, 2, 0, 1]
    assert examples.class_names == ("-1", "7", "100")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"embeddings": EMBEDDINGS},
            r"expected the arrays .* 'labels' is not among \['embeddings'\]",
        ),
        ({"data": [1.0], "indices": [0], "labels": [0]}, "'embeddings' is not among"),
        ({"embeddings": EMBEDDINGS, "labels": np.zeros(5, int)}, "expected 6 labels"),
        ({"embeddings": EMBEDDINGS, "labels": np.zeros(6)}, "integers or strings"),
        ({"embeddings": EMBEDDINGS[0], "labels": np.zeros(4, int)}, r"expected embeddings \(n"),
        ({"embeddings": EMBEDDINGS.astype(int), "labels": np.zeros(6, int)}, "of floats"),
        ({"embeddings": EMBEDDINGS[:0], "labels": np.zeros(0, int)}, r"got \(0, 4\) of float64"),
        ({"embeddings": EMBEDDINGS, "labels": np.full(6, np.nan)}, "integers or strings"),
        ({"embeddings": EMBEDDINGS * 1e300, "labels": np.zeros(6, int)}, "not finite float32"),
        (
            {"embeddings": EMBEDDINGS, "labels": np.zeros(6, int), "identities": np.ones(3)},
            "expected `identities` to be names",
        ),
        (
            {"embeddings": EMBEDDINGS * [1, 1, 1, np.nan], "labels": np.zeros(6, int)},
            "6 rows are not",
        ),
    ],
)
def test_other_arrays_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match="x.npz: .*" + message):
        dense_embeddings.load(tmp_path / "x.npz")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_the_embed_script_writes_is_read_by_its_path_alone(tmp_path, dtype):
    """Its layout: `name.npy`, `name.labels.npy` and `name.json`."""
    np.save(tmp_path / "run.test.npy", EMBEDDINGS.astype(dtype))
    np.save(tmp_path / "run.test.labels.npy", np.array([2, 0, 2, 1, 0, 0], np.int32))
    (tmp_path / "run.test.json").write_text("{}")
    examples = dense_embeddings.load(tmp_path / "run.test.npy")
    assert examples.labels.tolist() == [2, 0, 2, 1, 0, 0]
    ((embeddings, _),) = examples.evaluation_batches(6).as_numpy_iterator()
    assert embeddings.dtype == np.float32
    np.testing.assert_array_equal(embeddings, EMBEDDINGS.astype(dtype).astype(np.float32))


def test_other_files_are_refused_by_name(tmp_path):
    np.save(tmp_path / "x.npy", EMBEDDINGS)
    with pytest.raises(
        DataError, match=r"x.labels.npy: expected the labels of \S*x.npy, found no such file"
    ):
        dense_embeddings.load(tmp_path / "x.npy")
    np.save(tmp_path / "x.labels.npy", np.zeros(5, int))
    with pytest.raises(ValueError, match=r"x.labels.npy: expected 6 labels, .* got \(5,\)"):
        dense_embeddings.load(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", embeddings=EMBEDDINGS, labels=np.zeros(6, int))
    with pytest.raises(ValueError, match=r"labels_path=y.npy: expected None"):
        dense_embeddings.load(tmp_path / "x.npz", "y.npy")
    with pytest.raises(FileNotFoundError, match=r"No such file.*none.npz"):
        dense_embeddings.load(tmp_path / "none.npz")
    with pytest.raises(ValueError, match=r"x.txt: expected an .npz or .npy file"):
        dense_embeddings.load(tmp_path / "x.txt")
    for name in ("broken.npz", "broken.npy"):
        for content in (b"", b"PK\x03\x04 broken", b"text"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(
                ValueError, match=f"{name}: expected an .np[yz] of dense embeddings"
            ):
                dense_embeddings.load(tmp_path / name)


def test_a_folder_has_parts_of_its_own(tmp_path):
    """The class "b" has one number in both parts; "d", which is not trained on, the next free."""
    np.save(tmp_path / "train.npy", EMBEDDINGS)
    np.save(tmp_path / "train.labels.npy", np.array(["b", "a", "b", "c", "a", "a"]))
    np.save(tmp_path / "test.npy", EMBEDDINGS[:3])
    np.save(tmp_path / "test.labels.npy", np.array(["d", "b", "b"]))
    parts = catalogue.load("dense_embeddings", tmp_path)
    assert {name: part.labels.tolist() for name, part in parts.items()} == {
        "train": [1, 0, 1, 2, 0, 0],
        "test": [3, 1, 1],
    }
    assert parts["train"].class_names == ("a", "b", "c")
    assert parts["test"].class_names == ("a", "b", "c", "d")

    np.save(tmp_path / "test.npy", EMBEDDINGS[:3, :2])
    with pytest.raises(DataError, match=r"test.npy: expected vectors of 4 dimensions, .* got 2"):
        dense_embeddings.load_parts(tmp_path)
    (tmp_path / "train.npy").unlink()
    with pytest.raises(DataError, match="expected a folder that holds train"):
        dense_embeddings.load_parts(tmp_path)
