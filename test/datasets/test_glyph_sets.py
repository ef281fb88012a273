"""The evaluation sets of glyphs: disjoint, balanced, and the same for every encoder."""

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.datasets import glyph_sets, glyphs


@pytest.fixture(scope="module")
def parts():
    return glyphs.split(glyphs.load())


def test_probes_and_distractors_share_no_class_with_anything(parts):
    probes, distractors = glyph_sets.identification_parts(parts, 300)
    seen = set(parts.train.code_points) | set(parts.validation.code_points)
    assert not set(probes.code_points) & set(distractors.code_points)
    assert not seen & (set(probes.code_points) | set(distractors.code_points))
    assert probes.num_classes == 300
    assert distractors.num_classes == 1134 - 300 + 400
    assert np.bincount(probes.labels).min() >= 4  # every probe has mates
    # Labels point at the right code points: look some images up in where they came from.
    for part, source in ((distractors, parts.distractors), (distractors, parts.test)):
        row = np.flatnonzero(np.isin(part.code_points[part.labels], source.code_points))[-1]
        label = np.flatnonzero(source.code_points == part.code_points[part.labels[row]])[0]
        assert any(
            np.array_equal(part.images[row], x) for x in source.images[source.labels == label]
        )
    with pytest.raises(ValueError, match="classes=1134: expected an integer >= 1 <= 1133"):
        glyph_sets.identification_parts(parts, 1134)


@pytest.mark.parametrize("other_typeface", [False, True])
def test_pairs_are_what_they_say(parts, other_typeface):
    images, same = glyph_sets.verification_pairs(parts.test, 400, other_typeface)
    assert len(images) == 800
    np.testing.assert_array_equal(same, images.labels[::2] == images.labels[1::2])
    for fold in np.array_split(same, 10):
        assert fold.sum() == 20
    equal = np.array([np.array_equal(*images.images[2 * i : 2 * i + 2]) for i in range(400)])
    assert equal[same].any() != other_typeface
    assert not equal[~same].any()
    again, _ = glyph_sets.verification_pairs(parts.test, 400, other_typeface)
    np.testing.assert_array_equal(images.images, again.images)


def test_hard_warps_move_more_ink_than_easy_ones(parts):
    images, _ = glyph_sets.verification_pairs(parts.test, 100)
    clean = images.images[..., None] / 255
    moved = {}
    for name, warp in (("easy", glyph_sets.EASY), ("hard", glyph_sets.HARD)):
        warped = np.concatenate([x.numpy() for x, _ in glyph_sets.views(images, warp)])
        moved[name] = np.abs(warped - clean).mean()
    assert moved["hard"] > 1.5 * moved["easy"]


def test_stored_images_come_back(parts, tmp_path):
    probes, others = glyph_sets.identification_parts(parts, 5)
    streams = [glyph_sets.views(probes), glyphs.distractor_batches(others, 700, 512, seed=1)]
    path = tmp_path / "images.npy"
    count = len(probes) + 700
    glyph_sets.store(path, streams, count)
    drawn = np.concatenate([images.numpy() for stream in streams for images, _ in stream])
    labels = np.arange(count, dtype=np.int32)
    back = list(glyph_sets.stored_batches(path, labels, 100))
    assert len(glyph_sets.stored_batches(path, labels, 100)) == len(back) == -(-count // 100)
    np.testing.assert_array_equal(np.concatenate([y.numpy() for _, y in back]), labels)
    decoded = np.concatenate([x.numpy() for x, _ in back])
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, drawn.clip(-0.5, 191 / 128), atol=0.5 / 128 + 1e-6)
    assert np.load(path, mmap_mode="r").dtype == np.uint8


def test_mistakes_are_named(parts, tmp_path):
    stream = glyph_sets.views(parts.validation.select(np.arange(3)))
    count = sum(len(labels) for _, labels in stream)
    for wrong, message in ((count - 1, "have more images"), (count + 1, f"have {count} images")):
        with pytest.raises(ValueError, match=message):
            glyph_sets.store(tmp_path / "x.npy", [stream], wrong)
    assert list(tmp_path.iterdir()) == []
    np.save(tmp_path / "x.npy", np.zeros((4, 8, 8), np.uint8))
    with pytest.raises(ValueError, match="labels of length 3: expected 4, as in"):
        glyph_sets.stored_batches(tmp_path / "x.npy", np.zeros(3, np.int32), 2)
    np.save(tmp_path / "x.npy", np.zeros((4, 8, 8)))
    with pytest.raises(ValueError, match="expected uint8 images"):
        glyph_sets.stored_batches(tmp_path / "x.npy", np.zeros(4, np.int32), 2)


def test_an_item_does_not_depend_on_how_many_there_are(parts):
    _, others = glyph_sets.identification_parts(parts, 50)
    few, many = (
        tf.concat([x for x, _ in glyphs.distractor_batches(others, count, 256, seed=1)], 0)
        for count in (100, 300)
    )
    np.testing.assert_array_equal(few, many[:100])
