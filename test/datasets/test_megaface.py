"""The development kit's lists, noise lists and feature files."""

import json
import struct

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis.extra import numpy as hnp

from sparse_embed.common.failures import DataError
from sparse_embed.datasets import megaface

SHAPE = (4, 4, 3)


def test_real_probes(shared):
    probes = megaface.read_list(shared / "megaface/facescrub_features_list.json")
    noises = megaface.read_noises(shared / "megaface/facescrub_noises.txt")
    assert len(probes.paths) == 3530
    assert len(set(probes.ids)) == 80
    assert megaface.noisy_images(probes, noises).sum() == 24
    assert probes.paths[0] == "Michael_Landes/Michael_Landes_43667.png"
    assert probes.ids[0] == "Michael_Landes"


@pytest.mark.parametrize("count", [1000, 10000])
def test_real_distractors(shared, count):
    images = megaface.read_list(shared / f"megaface/megaface_features_list.json_{count}_1")
    noises = megaface.read_noises(shared / "megaface/megaface_noises.txt")
    assert len(images.paths) == count
    assert images.ids is None
    # Counted otherwise: as sets, for whole paths.
    expected = len(set(images.paths) & noises)
    assert megaface.noisy_images(images, noises).sum() == expected


@pytest.fixture
def faces(tmp_path):
    """Six images in a list: one of them missing, one noisy, one both."""
    paths = ["A/A_1.png", "A/A_2.png", "B/B_1.png", "B/B_2.png", "C/C_1.png", "C/C_2.png"]
    (tmp_path / "list.json").write_text(
        json.dumps({"path": paths, "id": [path[0] for path in paths]})
    )
    (tmp_path / "noises.txt").write_text("# a comment\nA_2.png\n\nC/C_1.png\nX_1.png\n")
    for number, path in enumerate(paths):
        if path not in ("B/B_1.png", "C/C_1.png"):
            file = tmp_path / "images" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(tf.io.encode_png(np.full(SHAPE, number, np.uint8)).numpy())
    return tmp_path


def test_missing_and_noisy_images_are_named_and_left_out(faces):
    images = megaface.read_list(faces / "list.json")
    noises = megaface.read_noises(faces / "noises.txt")
    selection = megaface.load(images, faces / "images", noises, SHAPE, on_missing="skip")
    assert selection.missing == ("B/B_1.png", "C/C_1.png")
    assert selection.noisy == ("A/A_2.png", "C/C_1.png")
    ((pixels, labels),) = selection.examples.evaluation_batches(8).as_numpy_iterator()
    assert np.round(pixels[:, 0, 0, 0] * 255).tolist() == [0, 3, 5]
    assert [selection.examples.class_names[label] for label in labels] == ["A", "B", "C"]


def test_missing_images_raise_unless_told_otherwise(faces):
    images = megaface.read_list(faces / "list.json")
    with pytest.raises(ValueError, match=r"list.json: 2 of 6 .*the first is B/B_1.png"):
        megaface.load(images, faces / "images", image_shape=SHAPE)


def test_distractors_have_no_labels(faces):
    (faces / "d.json").write_text(json.dumps({"path": ["A/A_1.png"]}))
    selection = megaface.load(megaface.read_list(faces / "d.json"), faces / "images", (), SHAPE)
    assert selection.examples.labels.tolist() == [-1]
    assert selection.examples.num_classes == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1", "expected a list of images in JSON"),
        ("[" * 100000, "expected a list of images in JSON"),
        ("[]", "no JSON object"),
        ('{"path": ["a", 1]}', "list of file names"),
        ('{"path": ["a"], "id": []}', "`id` to be a list of 1"),
        ('{"path": ["../../etc/passwd"]}', "inside the folder"),
        ('{"path": ["/etc/passwd"]}', "inside the folder"),
    ],
)
def test_other_lists_are_refused(tmp_path, content, message):
    (tmp_path / "list.json").write_text(content)
    with pytest.raises(ValueError, match="list.json: .*" + message):
        megaface.read_list(tmp_path / "list.json")


def test_feature_file_is_what_the_kit_writes(tmp_path):
    """Three rows, one column, a stride of 4 bytes, OpenCV's 5 for float32."""
    megaface.write_features(tmp_path / "f.bin", np.array([1.0, -2.0, 0.5]))
    expected = struct.pack("<4i3f", 3, 1, 4, 5, 1.0, -2.0, 0.5)
    assert (tmp_path / "f.bin").read_bytes() == expected


@given(features=hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0)))
def test_features_come_back(tmp_path_factory, features):
    path = tmp_path_factory.getbasetemp() / "features.bin"
    megaface.write_features(path, features)
    np.testing.assert_array_equal(megaface.read_features(path), features)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes, too few"),
        (struct.pack("<4i", 2, 1, 4, 6) + bytes(8), "header 2, 1, 4, 6: expected"),
        (struct.pack("<4i", 2, 1, 8, 5) + bytes(8), "header 2, 1, 8, 5: expected"),
        (struct.pack("<4i", -2, 1, 4, 5), "header -2"),
        (struct.pack("<4i", 2, 1, 4, 5) + bytes(7), "23 bytes, expected 24"),
        (struct.pack("<4i", 2, 1, 4, 5) + bytes(9), "25 bytes, expected 24"),
        (struct.pack("<4i", 2**30, 2**28, 2**30, 5), "expected"),
    ],
)
def test_damaged_feature_files(tmp_path, content, message):
    (tmp_path / "f.bin").write_bytes(content)
    with pytest.raises(ValueError, match="f.bin: .*" + message):
        megaface.read_features(tmp_path / "f.bin")


def test_feature_tree(tmp_path):
    paths = ["278/27809140@N00/2526954590_4.jpg", "195/1_0.jpg", "A/A_1.png"]
    features = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    megaface.write_feature_tree(tmp_path, paths, features, "_net.bin")
    assert (tmp_path / "278/27809140@N00/2526954590_4.jpg_net.bin").is_file()
    (tmp_path / "195/1_0.jpg_net.bin").unlink()
    found, missing = megaface.read_feature_tree(tmp_path, paths, "_net.bin")
    assert missing == ("195/1_0.jpg",)
    np.testing.assert_array_equal(found, features[[0, 2]])
    with pytest.raises(ValueError, match="a row for each of 3 paths"):
        megaface.write_feature_tree(tmp_path, paths, features[:2], "_net.bin")


def test_lists_that_are_not_text_are_refused_by_name(tmp_path):
    path = tmp_path / "noises.txt"
    path.write_bytes(b"a.jpg\n\xff\xfe.jpg\n")
    with pytest.raises(DataError, match=r"noises\.txt: expected a noise list"):
        megaface.read_noises(path)
    with pytest.raises(DataError, match=r"noises\.txt: expected a list of images in JSON"):
        megaface.read_list(path)
