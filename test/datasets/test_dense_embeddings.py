"""Dense embeddings with labels."""

import numpy as np
import pytest

from sparse_embed.datasets import dense_embeddings

EMBEDDINGS = np.random.default_rng(0).normal(size=(6, 4))


def test_faces_of_a_real_encoder(shared):
    path = shared / "faces/lfw_dlib128.npz"
    examples = dense_embeddings.load(path)
    assert (len(examples), examples.num_classes, examples.shape) == (13233, 5749, (128,))
    part = dense_embeddings.split_by_class(examples, test=2875)
    assert (part.train.num_classes, part.test.num_classes) == (2874, 2875)
    assert not set(part.train.class_names) & set(part.test.class_names)
    assert len(part.train) + len(part.test) == 13233
    batches = dense_embeddings.evaluation_batches(part.test, 1000).as_numpy_iterator()
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
    ((embeddings, _),) = dense_embeddings.evaluation_batches(examples, 6).as_numpy_iterator()
    np.testing.assert_array_equal(embeddings, EMBEDDINGS.astype(np.float32))
    assert dense_embeddings.training_batches(examples, 2, seed=0).element_spec[0].shape == (2, 4)


def test_integer_labels_need_not_be_dense(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=EMBEDDINGS, labels=[7, -1, 7, 100, -1, 7])
    examples = dense_embeddings.load(tmp_path / "x.npz")
    assert examples.labels.tolist() == [1, 0, 1, 2, 0, 1]
    assert examples.class_names == ("-1", "7", "100")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"embeddings": EMBEDDINGS}, "no array 'labels'"),
        ({"embeddings": EMBEDDINGS, "labels": np.zeros(5, int)}, "expected 6 labels"),
        ({"embeddings": EMBEDDINGS, "labels": np.zeros(6)}, "integers or strings"),
        ({"embeddings": EMBEDDINGS[0], "labels": np.zeros(4, int)}, r"expected embeddings \(n"),
        ({"embeddings": EMBEDDINGS.astype(int), "labels": np.zeros(6, int)}, "of floats"),
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


def test_where_the_labels_are(tmp_path):
    np.save(tmp_path / "x.npy", EMBEDDINGS)
    with pytest.raises(ValueError, match=r"labels_path=None: expected the .npy file"):
        dense_embeddings.load(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", embeddings=EMBEDDINGS, labels=np.zeros(6, int))
    with pytest.raises(ValueError, match=r"labels_path=y.npy: expected None"):
        dense_embeddings.load(tmp_path / "x.npz", "y.npy")
