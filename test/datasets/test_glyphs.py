"""The glyphs data set: what it holds, its cache, its split and its streams."""

import itertools
import os
import subprocess
import sys
import warnings

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from sparse_embed.datasets import glyphs
from sparse_embed.datasets.augment import Warp


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def full(cache):
    return glyphs.load(cache)


@pytest.fixture(scope="module")
def parts(full):
    return glyphs.split(full)


@pytest.fixture
def quick_render(monkeypatch, parts):
    """Counts renderings and makes them cheap, for tests of what is around them."""
    calls = []
    monkeypatch.setattr(glyphs, "render", lambda *args: calls.append(args) or parts.validation)
    return calls


def drawn(batches):
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def same(first, second):
    for name in ("images", "labels", "code_points", "font_ids"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
        assert getattr(first, name).dtype == getattr(second, name).dtype
    assert first.fonts == second.fonts


def test_is_large_enough(full):
    assert full.num_classes >= 5000
    assert len(full) >= 45000
    assert full.images.shape == (len(full), 32, 32)
    assert full.images.dtype == np.uint8
    assert len(full.fonts) >= 16
    counts = np.bincount(full.labels, minlength=full.num_classes)
    assert len(counts) == full.num_classes == len(set(full.code_points.tolist()))
    assert counts.min() >= 4
    # At most one image per class and typeface.
    pairs = full.labels.astype(np.int64) * len(full.fonts) + full.font_ids
    assert (np.diff(pairs) > 0).all()


def test_no_image_has_two_labels(full):
    labels_of = {}
    for image, label in zip(full.images, full.labels.tolist(), strict=True):
        labels_of.setdefault(image.tobytes(), set()).add(label)
    assert all(len(labels) == 1 for labels in labels_of.values())
    assert all(image.any() for image in full.images)


def test_characters_are_where_they_should_be(full):
    """Looks at glyphs whose shape is known, in every typeface: class, row order and orientation."""
    points = full.code_points.tolist()
    assert {ord(c) for c in "AgЖλ∑"} <= set(points)
    # Latin, Greek and Cyrillic capital A: the twins went to the Latin one.
    assert np.count_nonzero(full.labels == points.index(ord("A"))) >= 16
    assert 0x410 not in points

    def ink(character):
        return full.images[full.labels == points.index(ord(character))].astype(float)

    assert (ink("_")[:, :16].sum(axis=(1, 2)) == 0).all()  # below the middle
    assert (ink("^")[:, 18:].sum(axis=(1, 2)) == 0).all()  # above it
    letter = ink("L")  # its foot is at the bottom, its stem on the left
    rows, columns = letter.sum(axis=2), letter.sum(axis=1)
    assert (rows.argmax(axis=1) > 16).all()
    assert (columns.argmax(axis=1) < 16).all()
    # Not cut off: the border of one pixel is empty but for the blur of edges.
    assert np.mean(full.images[:, [0, -1]] > 127) < 0.001


def test_twins_stay_with_the_lowest_label():
    """Images aab, bcd, bce of labels 0, 1, 2: b stays with 0, c with 1, which leaves aab, cd, e."""
    letters = np.frombuffer(b"aabbcdbce", np.uint8)
    toy = glyphs.Glyphs(
        images=np.broadcast_to(letters[:, None, None], (9, 8, 8)),
        labels=np.repeat(np.arange(3, dtype=np.int32), 3),
        code_points=np.array([65, 66, 67], np.int32),
        fonts=("x", "y", "z"),
        font_ids=np.tile(np.arange(3, dtype=np.int32), 3),
    )
    left = glyphs._without_twins(toy, min_fonts=1)
    assert left.images[:, 0, 0].tobytes() == b"aabcde"
    np.testing.assert_array_equal(left.labels, [0, 0, 0, 1, 1, 2])
    np.testing.assert_array_equal(left.font_ids, [0, 1, 2, 1, 2, 2])
    fewer = glyphs._without_twins(toy, min_fonts=2)
    assert fewer.images[:, 0, 0].tobytes() == b"aabcd"
    np.testing.assert_array_equal(fewer.code_points, [65, 66])


def test_rendering_is_deterministic(full):
    """Renders a part again, at other places of other sheets: the pixels must be the same."""
    again = glyphs._rasterise(size=32, min_fonts=16)
    keys = zip(again.code_points[again.labels].tolist(), again.font_ids.tolist(), strict=True)
    images = dict(zip(keys, again.images, strict=True))
    compared = 0
    for image, label, font in zip(full.images, full.labels, full.font_ids.tolist(), strict=True):
        other = images.get((int(full.code_points[label]), font))
        if other is not None:
            np.testing.assert_array_equal(image, other)
            compared += 1
    assert again.fonts == full.fonts
    assert compared > 5000


def test_cache_is_used(full, cache, quick_render):
    (file,) = cache.iterdir()
    assert file.suffix == ".npz"
    same(glyphs.load(cache), full)
    assert not quick_render


def test_cache_is_keyed_by_the_parameters(tmp_path, quick_render):
    for arguments in ({}, {"min_fonts": 5}, {"min_fonts": 5}):
        glyphs.load(tmp_path, **arguments)
    assert quick_render == [(32, 4), (32, 5)]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "other arrays", "pickle"])
def test_broken_cache_is_rendered_again(tmp_path, parts, quick_render, damage):
    glyphs.load(tmp_path)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 0xFF
        file.write_bytes(content)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "other arrays":
        np.savez(file, images=np.zeros(3))
    else:
        np.savez(file, images=np.array([{}], dtype=object))
    with pytest.warns(UserWarning, match="rendering again"):
        same(glyphs.load(tmp_path), parts.validation)
    assert len(quick_render) == 2
    same(glyphs.load(tmp_path), parts.validation)
    assert len(quick_render) == 2  # the cache is whole again


def test_unwritable_cache_only_warns(tmp_path, parts, quick_render):
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(UserWarning, match="not cached"):
        same(glyphs.load(tmp_path / "file" / "folder"), parts.validation)


def test_default_cache_follows_xdg(tmp_path, monkeypatch, quick_render):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    glyphs.load()
    assert len(list((tmp_path / "xdg" / "sparse_embed").iterdir())) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    glyphs.load()
    assert len(list((tmp_path / "home" / ".cache" / "sparse_embed").iterdir())) == 1


def test_split_is_by_class(full, parts):
    assert parts.train.num_classes > 1024
    assert [p.num_classes for p in parts[1:]] == [200, 1134, 400]
    points = [set(part.code_points.tolist()) for part in parts]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(points, 2))
    assert set.union(*points) == set(full.code_points.tolist())
    assert sum(map(len, parts)) == len(full)
    for part in parts:
        assert set(part.labels.tolist()) == set(range(part.num_classes))


def test_split_keeps_images_with_their_code_points(full, parts):
    def owners(part):
        points = part.code_points[part.labels].tolist()
        return {image.tobytes(): point for image, point in zip(part.images, points, strict=True)}

    whole = owners(full)
    for part in parts:
        assert owners(part).items() <= whole.items()


def test_split_follows_its_seed(full, parts):
    same(glyphs.split(full, seed=0).test, parts.test)
    assert set(glyphs.split(full, seed=1).test.code_points) != set(parts.test.code_points)


def test_training_batches_have_the_promised_form(parts):
    batches = glyphs.training_batches(parts.train, 64, seed=0)
    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
    assert batches.element_spec[0] == tf.TensorSpec((64, 32, 32, 1), tf.float32)
    assert batches.element_spec[1] == tf.TensorSpec((64,), tf.int32)
    images, _ = drawn(batches.take(20))
    assert np.median(images) == pytest.approx(0, abs=0.05)  # background
    assert 0.8 < np.quantile(images, 0.98) < 1.2  # ink
    assert images.min() > -0.8
    assert images.max() < 1.8


def test_training_sees_every_image_once_per_pass_in_new_orders(parts):
    part = parts.validation
    still = Warp(rotation=0, scale=0, shear=0, translation=0, blur=0, noise=0)
    batches = glyphs.training_batches(part, len(part), seed=0, warp=still).take(2)
    passes = [(np.round(x * 255).astype(np.uint8)[..., 0], y.numpy()) for x, y in batches]

    def content(images, labels):
        return [(i.tobytes(), label) for i, label in zip(images, labels.tolist(), strict=True)]

    everything = content(part.images, part.labels)
    orders = [content(*one) for one in passes]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(everything)
    assert orders[0] != orders[1]


def test_shuffling_is_as_good_as_chance(parts):
    """Neighbours of one class: sum of c (c - 1) / (n (n - 1)) by chance, for class sizes c.

    About 9 of 1,673 pairs per pass, so 2.5 times that is 4 standard deviations away.
    """
    part = parts.validation
    n, sizes = len(part), np.bincount(part.labels)
    chance = np.sum(sizes * (sizes - 1)) / (n * (n - 1))
    for seed in (0, 1, 5):
        _, labels = drawn(glyphs.training_batches(part, n, seed).take(4))
        for order in labels.reshape(4, n):
            assert np.mean(order[1:] == order[:-1]) < 2.5 * chance
            assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 0.1


def test_training_is_a_function_of_seed_and_step(parts):
    first = drawn(glyphs.training_batches(parts.train, 32, seed=5).take(4))
    again = drawn(glyphs.training_batches(parts.train, 32, seed=5).take(4))
    other = drawn(glyphs.training_batches(parts.train, 32, seed=6).take(4))
    resumed = drawn(glyphs.training_batches(parts.train, 32, seed=5, start_step=2).take(2))
    for one, two, later in zip(first, again, resumed, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one[64:], later)
    assert np.mean(first[1] == other[1]) < 0.1


def test_evaluation_gives_every_image_its_views(parts):
    part = parts.validation
    batches = glyphs.evaluation_batches(part, views=3, batch_size=100, seed=0)
    assert batches.cardinality() == -(-3 * len(part) // 100)
    images, labels = drawn(batches)
    np.testing.assert_array_equal(labels, np.tile(part.labels, 3))
    views = images[..., 0].reshape(3, *part.images.shape)
    clean = part.images / 255
    for one, two in itertools.combinations([clean, *views], 2):
        assert (np.abs(one - two).mean(axis=(1, 2)) > 0.001).all()
    # Warped views still look like their own image, more than like others.
    own = np.abs(views[0] - clean).mean()
    assert own < 0.7 * np.abs(views[0] - np.roll(clean, len(clean) // 2, axis=0)).mean()


def test_evaluation_does_not_depend_on_batches_or_views(parts):
    part = parts.validation
    images, labels = drawn(glyphs.evaluation_batches(part, 2, 100, seed=0))
    larger = drawn(glyphs.evaluation_batches(part, 2, 333, seed=0))
    fewer = drawn(glyphs.evaluation_batches(part, 1, 64, seed=0))
    np.testing.assert_array_equal(images, larger[0])
    np.testing.assert_array_equal(labels, larger[1])
    np.testing.assert_array_equal(images[: len(part)], fewer[0])
    other, _ = drawn(glyphs.evaluation_batches(part, 1, 64, seed=1))
    assert np.abs(other - fewer[0]).mean() > 0.01


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1000])
def test_distractors_are_counted_exactly_and_prefix_stable(parts, count):
    batches = glyphs.distractor_batches(parts.distractors, count, 100, seed=0)
    assert batches.cardinality() == -(-count // 100)
    assert sum(len(labels) for _, labels in batches) == count
    if count:
        images, labels = drawn(batches)
        more = glyphs.distractor_batches(parts.distractors, 5000, 64, seed=0)
        more_images, more_labels = drawn(more.take(-(-count // 64)))
        np.testing.assert_array_equal(images, more_images[:count])
        np.testing.assert_array_equal(labels, more_labels[:count])


def test_a_million_distractors_are_made_as_they_are_drawn(parts):
    batches = glyphs.distractor_batches(parts.distractors, 1_000_000, 256, seed=0)
    assert batches.cardinality() == 3907
    images, labels = drawn(batches.take(2 * len(parts.distractors) // 256 + 1))
    # The second pass shows the same images again, warped anew.
    assert len({image.tobytes() for image in images}) == len(images)
    counts = np.bincount(labels, minlength=parts.distractors.num_classes)
    assert (counts >= 2 * np.bincount(parts.distractors.labels)).all()


def test_contact_sheet(parts, tmp_path):
    path = tmp_path / "glyphs.png"
    glyphs.contact_sheet(parts.test, path, rows=6, views=4)
    assert list(tmp_path.iterdir()) == [path]
    assert 10_000 < path.stat().st_size < 300_000
    picture = np.asarray(PIL.Image.open(path))
    assert picture.shape[1] > picture.shape[0] > 200
    assert (picture < 64).mean() > 0.02
    assert (picture > 192).mean() > 0.5


def test_import_of_the_package_is_light():
    program = (
        "import sys, sparse_embed.datasets; print({'tensorflow', 'matplotlib'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout.strip() == "set()"


def test_bad_arguments_are_named(full, parts, tmp_path):
    part = parts.validation
    empty = full.select(np.array([], np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call, match in [
            (lambda: glyphs.load(tmp_path, size=4), "size=4: expected an integer >= 8"),
            (lambda: glyphs.load(tmp_path, min_fonts=0), "min_fonts=0"),
            (lambda: glyphs.split(full, seed=-1), "seed=-1"),
            (lambda: glyphs.split(full, test=-1), "test=-1"),
            (lambda: glyphs.split(full, test=10_000), "expected fewer classes"),
            (lambda: glyphs.training_batches(part, 0, 0), "batch_size=0"),
            (lambda: glyphs.training_batches(part, 8, 0.5), "seed=0.5"),
            (lambda: glyphs.training_batches(part, 8, 0, start_step=-1), "start_step=-1"),
            (lambda: glyphs.training_batches(empty, 8, 0), "at least one image"),
            (lambda: glyphs.evaluation_batches(part, 0, 8, 0), "views=0"),
            (lambda: glyphs.evaluation_batches(part, 1, 0, 0), "batch_size=0"),
            (lambda: glyphs.distractor_batches(part, -1, 8, 0), "count=-1"),
            (lambda: glyphs.contact_sheet(part, tmp_path / "x.png", rows=0), "rows=0"),
        ]:
            with pytest.raises(ValueError, match=match):
                call()
    assert not list(tmp_path.iterdir())
