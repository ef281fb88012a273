"""The evaluation sets: disjoint, balanced, and the same for every encoder."""

import numpy as np
import pytest

from sparse_embed.datasets import evaluation_sets, glyphs, words


@pytest.fixture(scope="module")
def parts():
    return glyphs.split(glyphs.load())


def images_of(part):
    return glyphs.source_of(part).images[part.rows]


def test_probes_and_distractors_share_no_class_with_anything(parts):
    probes, distractors = evaluation_sets.identification_parts(parts, 300)
    seen = set(parts["train"].class_names) | set(parts["validation"].class_names)
    assert not set(probes.class_names) & set(distractors.class_names)
    assert not seen & (set(probes.class_names) | set(distractors.class_names))
    assert probes.num_classes == 300
    assert distractors.num_classes == 1134 - 300 + 400
    assert np.bincount(probes.labels).min() >= 4  # every probe has mates
    # Labels name the right code points: each image is known by its row.
    code_points = {
        row: part.class_names[label]
        for part in (parts["test"], parts["distractors"])
        for row, label in zip(part.rows, part.labels, strict=True)
    }
    assert sorted([*probes.rows, *distractors.rows]) == sorted(code_points)
    for part in (probes, distractors):
        for row, label in zip(part.rows, part.labels, strict=True):
            assert part.class_names[label] == code_points[row]
    with pytest.raises(ValueError, match="classes=1134: expected an integer >= 1 <= 1133"):
        evaluation_sets.identification_parts(parts, 1134)


@pytest.mark.parametrize("other_typeface", [False, True])
def test_pairs_are_what_they_say(parts, other_typeface):
    images, same = evaluation_sets.verification_pairs(parts["test"], 400, other_typeface)
    assert len(images) == 800
    np.testing.assert_array_equal(same, images.labels[::2] == images.labels[1::2])
    for fold in np.array_split(same, 10):
        assert fold.sum() == 20
    equal = np.array([np.array_equal(*pair) for pair in images_of(images).reshape(400, 2, 32, 32)])
    assert equal[same].any() != other_typeface
    assert not equal[~same].any()
    again, _ = evaluation_sets.verification_pairs(parts["test"], 400, other_typeface)
    np.testing.assert_array_equal(images.rows, again.rows)
    other, _ = evaluation_sets.verification_pairs(parts["test"], 400, other_typeface, seed=1)
    assert (images.rows != other.rows).any()


def test_hard_warps_move_more_ink_than_easy_ones(parts):
    images, _ = evaluation_sets.verification_pairs(parts["test"], 100)
    clean = images_of(images)[..., None] / 255
    moved = {}
    for name, warp in (("easy", evaluation_sets.EASY), ("hard", evaluation_sets.HARD)):
        warped = np.concatenate([x.numpy() for x, _ in evaluation_sets.views(images, warp)])
        moved[name] = np.abs(warped - clean).mean()
    assert moved["hard"] > 1.5 * moved["easy"]


def test_stored_images_come_back(parts, tmp_path):
    probes, others = evaluation_sets.identification_parts(parts, 5)
    streams = [evaluation_sets.views(probes), others.stream(700, 512, seed=1)]
    path = tmp_path / "images.npy"
    count = len(probes) + 700
    evaluation_sets.store(path, streams, count)
    drawn = np.concatenate([images.numpy() for stream in streams for images, _ in stream])
    labels = np.arange(count, dtype=np.int32)
    back = list(evaluation_sets.stored_batches(path, labels, 100))
    assert len(evaluation_sets.stored_batches(path, labels, 100)) == len(back) == -(-count // 100)
    np.testing.assert_array_equal(np.concatenate([y.numpy() for _, y in back]), labels)
    decoded = np.concatenate([x.numpy() for x, _ in back])
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, drawn.clip(-0.5, 191 / 128), atol=0.5 / 128 + 1e-6)
    assert np.load(path, mmap_mode="r").dtype == np.uint8


def test_mistakes_are_named(parts, tmp_path):
    stream = evaluation_sets.views(parts["validation"].select(np.arange(3)))
    count = sum(len(labels) for _, labels in stream)
    for wrong, message in ((count - 1, "have more images"), (count + 1, f"have {count} images")):
        with pytest.raises(ValueError, match=message):
            evaluation_sets.store(tmp_path / "x.npy", [stream], wrong)
    assert list(tmp_path.iterdir()) == []
    np.save(tmp_path / "x.npy", np.zeros((4, 8, 8), np.uint8))
    with pytest.raises(ValueError, match=r"x\.npy: labels of shape \(3,\) .* each of the 4 images"):
        evaluation_sets.stored_batches(tmp_path / "x.npy", np.zeros(3, np.int32), 2)
    np.save(tmp_path / "x.npy", np.zeros((4, 8, 8)))
    with pytest.raises(ValueError, match="expected uint8 images"):
        evaluation_sets.stored_batches(tmp_path / "x.npy", np.zeros(4, np.int32), 2)
    np.save(tmp_path / "x.npy", np.zeros((4, 8, 9), np.uint8, order="F"))
    with pytest.raises(ValueError, match=r"x\.npy: expected images one after the other"):
        evaluation_sets.stored_batches(tmp_path / "x.npy", np.zeros(4, np.int32), 2)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"x\.npy: expected stored images: .* cut off"):
        evaluation_sets.stored_batches(tmp_path / "x.npy", np.zeros(4, np.int32), 2)


@pytest.fixture(scope="module")
def files(tmp_path_factory, parts):
    return evaluation_sets.draw_all(tmp_path_factory.mktemp("sets") / "new", parts, 600, 6, 40)


def test_all_sets_are_drawn_with_their_labels(files, parts):
    names = {"identification": "identification_6_600", "easy": "easy_40", "hard": "hard_40"}
    assert {name: path.stem for name, path in files.items()} == names
    folder = files["easy"].parent
    assert {path.name for path in folder.iterdir()} == {
        f"{name}{suffix}" for name in names.values() for suffix in (".npy", ".labels.npy")
    }
    labels = {name: np.load(path.with_suffix(".labels.npy")) for name, path in files.items()}
    assert (labels["identification"][-600:] == -1).all()
    assert set(labels["identification"][:-600]) == set(range(6))
    probes, others = evaluation_sets.identification_parts(parts, 6)
    streams = [evaluation_sets.views(probes), others.stream(600, 128, seed=1)]
    drawn = {"identification": np.concatenate([x for stream in streams for x, _ in stream])}
    for name, warp in (("easy", evaluation_sets.EASY), ("hard", evaluation_sets.HARD)):
        images, same = evaluation_sets.verification_pairs(parts["test"], 40, name == "hard")
        np.testing.assert_array_equal(labels[name], images.labels)
        np.testing.assert_array_equal(labels[name][::2] == labels[name][1::2], same)
        drawn[name] = np.concatenate([x for x, _ in evaluation_sets.views(images, warp)])
    for name, path in files.items():
        stored = evaluation_sets.stored_batches(path, labels[name], 100)
        decoded = np.concatenate([x for x, _ in stored])
        expected = drawn[name].clip(-0.5, 191 / 128)
        np.testing.assert_allclose(decoded, expected, atol=0.5 / 128 + 1e-6)


def test_drawing_again_replaces_the_files_by_the_same(files, parts):
    content = {path: path.read_bytes() for path in files["easy"].parent.iterdir()}
    files["easy"].write_bytes(b"broken")
    assert evaluation_sets.draw_all(files["easy"].parent, parts, 600, 6, 40) == files
    assert {path: path.read_bytes() for path in files["easy"].parent.iterdir()} == content


@pytest.fixture(scope="module")
def word_parts():
    return words.split(glyphs.load())


def letters_of(names):
    return {letter for name in names for letter in name.split()}


def test_distractors_of_words_are_a_class_each_and_share_no_letter_with_the_probes(word_parts):
    probes, distractors = evaluation_sets.identification_parts(word_parts, 50)
    assert probes.num_classes == 50
    assert len(np.unique(distractors.rows)) == len(distractors) > 1_000_000
    letters = glyphs.load()
    n, rows = len(letters), distractors.rows
    images = np.concatenate([rows // n**2, rows // n % n, rows % n])
    seen = {letters.class_names[label] for label in np.unique(letters.labels[images])}
    assert not letters_of(probes.class_names) & seen
    assert not letters_of(word_parts["train"].class_names) & seen


def test_more_distractors_than_there_are_words_are_refused(word_parts, tmp_path):
    few = {**word_parts, "distractors": word_parts["distractors"].take(np.arange(100))}
    with pytest.raises(ValueError, match="distractors=101: expected an integer >= 1 <= 100"):
        evaluation_sets.draw_all(tmp_path, few, 101, 6, pairs=40)


@pytest.mark.parametrize("other_typeface", [False, True])
def test_pairs_of_words_are_what_they_say(word_parts, other_typeface):
    test = word_parts["test"]
    images, same = evaluation_sets.verification_pairs(test, 400, other_typeface)
    np.testing.assert_array_equal(same, images.labels[::2] == images.labels[1::2])
    drawn = images.source.compose(images.rows).numpy().reshape(400, 2, 24 * 48)
    equal = (drawn[:, 0] == drawn[:, 1]).all(axis=1)
    assert equal[same].any() != other_typeface
    assert not equal[~same].any()
