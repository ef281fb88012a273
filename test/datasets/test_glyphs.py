"""The glyphs data set: what it holds, its cache, its split and its streams."""

import dataclasses
import itertools
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
    monkeypatch.setattr(glyphs, "render", lambda *args: calls.append(args) or parts["validation"])
    return calls


def drawn(batches):
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def images_of(part):
    return glyphs.source_of(part).images[part.rows]


def font_ids_of(part):
    return glyphs.source_of(part).font_ids[part.rows]


def fonts_of(part):
    return glyphs.source_of(part).fonts


def same(first, second):
    for values in (images_of, font_ids_of, lambda part: part.labels):
        np.testing.assert_array_equal(values(first), values(second))
        assert values(first).dtype == values(second).dtype
    assert fonts_of(first) == fonts_of(second)
    assert (first.shape, first.class_names) == (second.shape, second.class_names)


def test_is_large_enough(full):
    assert full.num_classes >= 5000
    assert len(full) >= 45000
    assert full.shape == (32, 32, 1)
    assert glyphs.source_of(full).images.shape == (len(full), 32, 32)  # and no more in memory
    assert images_of(full).dtype == np.uint8
    assert len(fonts_of(full)) >= 16
    counts = np.bincount(full.labels, minlength=full.num_classes)
    assert len(counts) == full.num_classes == len(set(full.class_names))
    assert counts.min() >= 4
    # At most one image per class and typeface.
    pairs = full.labels.astype(np.int64) * len(fonts_of(full)) + font_ids_of(full)
    assert (np.diff(pairs) > 0).all()


def test_no_image_has_two_labels(full):
    labels_of = {}
    for image, label in zip(images_of(full), full.labels.tolist(), strict=True):
        labels_of.setdefault(image.tobytes(), set()).add(label)
    assert all(len(labels) == 1 for labels in labels_of.values())
    assert all(image.any() for image in images_of(full))


def test_characters_are_where_they_should_be(full):
    """Looks at glyphs whose shape is known, in every typeface: class, row order and orientation."""
    points = [int(name.removeprefix("U+"), 16) for name in full.class_names]
    assert "U+0041" in full.class_names
    assert {ord(c) for c in "AgЖλ∑"} <= set(points)
    # Latin, Greek and Cyrillic capital A: the duplicates went to the Latin one.
    assert np.count_nonzero(full.labels == points.index(ord("A"))) >= 16
    assert 0x410 not in points

    def ink(character):
        return images_of(full)[full.labels == points.index(ord(character))].astype(float)

    assert (ink("_")[:, :16].sum(axis=(1, 2)) == 0).all()  # below the middle
    assert (ink("^")[:, 18:].sum(axis=(1, 2)) == 0).all()  # above it
    letter = ink("L")  # its foot is at the bottom, its stem on the left
    rows, columns = letter.sum(axis=2), letter.sum(axis=1)
    assert (rows.argmax(axis=1) > 16).all()
    assert (columns.argmax(axis=1) < 16).all()
    # Not cut off: the border of one pixel is empty but for the blur of edges.
    assert np.mean(images_of(full)[:, [0, -1]] > 127) < 0.001


def test_duplicates_stay_with_the_lowest_label():
    """Images aab, bcd, bce of labels 0, 1, 2: b stays with 0, c with 1, which leaves aab, cd, e."""
    letters = np.frombuffer(b"aabbcdbce", np.uint8)
    toy = glyphs._from_arrays(
        images=np.broadcast_to(letters[:, None, None], (9, 8, 8)),
        labels=np.repeat(np.arange(3, dtype=np.int32), 3),
        code_points=np.array([65, 66, 67], np.int32),
        fonts=np.array(["x", "y", "z"]),
        font_ids=np.tile(np.arange(3, dtype=np.int32), 3),
    )
    left = glyphs._without_duplicates(toy, min_fonts=1)
    assert images_of(left)[:, 0, 0].tobytes() == b"aabcde"
    np.testing.assert_array_equal(left.labels, [0, 0, 0, 1, 1, 2])
    np.testing.assert_array_equal(font_ids_of(left), [0, 1, 2, 1, 2, 2])
    fewer = glyphs._without_duplicates(toy, min_fonts=2)
    assert images_of(fewer)[:, 0, 0].tobytes() == b"aabcd"
    assert fewer.class_names == ("U+0041", "U+0042")


def test_rendering_is_deterministic(full):
    """Renders a part again, at other places of other sheets: the pixels must be the same."""
    again = glyphs._rasterise(size=32, min_fonts=16)

    def by_origin(part):
        names = [part.class_names[label] for label in part.labels]
        return dict(zip(zip(names, font_ids_of(part), strict=True), images_of(part), strict=True))

    first, second = by_origin(full), by_origin(again)
    compared = first.keys() & second.keys()
    assert len(compared) > 5000
    for key in compared:
        np.testing.assert_array_equal(first[key], second[key])
    assert fonts_of(again) == fonts_of(full)


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


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped", "empty", "other arrays", "pickle", "labels"]
)
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
    elif damage == "labels":
        arrays = dict(np.load(file))
        np.savez(file, **arrays | {"labels": arrays["labels"] + 1})  # one class too many
    else:
        np.savez(file, images=np.array([{}], dtype=object))
    with pytest.warns(UserWarning, match="rendering again"):
        same(glyphs.load(tmp_path), parts["validation"])
    assert len(quick_render) == 2
    same(glyphs.load(tmp_path), parts["validation"])
    assert len(quick_render) == 2  # the cache is whole again


def test_unwritable_cache_only_warns(tmp_path, parts, quick_render):
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(UserWarning, match="not cached"):
        same(glyphs.load(tmp_path / "file" / "folder"), parts["validation"])


def test_default_cache_follows_xdg(tmp_path, monkeypatch, quick_render):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    glyphs.load()
    assert len(list((tmp_path / "xdg" / "sparse_embed").iterdir())) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    glyphs.load()
    assert len(list((tmp_path / "home" / ".cache" / "sparse_embed").iterdir())) == 1


def test_split_is_by_class(full, parts):
    sizes = {name: part.num_classes for name, part in parts.items()}
    assert sizes.pop("train") > 1024
    assert sizes == {"validation": 200, "test": 1134, "distractors": 400}
    points = [set(part.class_names) for part in parts.values()]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(points, 2))
    assert set.union(*points) == set(full.class_names)
    assert sum(map(len, parts.values())) == len(full)
    for part in parts.values():
        assert set(part.labels.tolist()) == set(range(part.num_classes))


def test_split_keeps_images_with_their_code_points(full, parts):
    def owners(part):
        points = [part.class_names[label] for label in part.labels]
        return {
            image.tobytes(): point for image, point in zip(images_of(part), points, strict=True)
        }

    whole = owners(full)
    for part in parts.values():
        assert owners(part).items() <= whole.items()


def test_split_follows_its_seed(full, parts):
    same(glyphs.split(full, seed=0)["test"], parts["test"])
    assert set(glyphs.split(full, seed=1)["test"].class_names) != set(parts["test"].class_names)


def test_training_batches_have_the_promised_form(parts):
    batches = parts["train"].training_batches(64, seed=0)
    assert batches.element_spec[0] == tf.TensorSpec((64, 32, 32, 1), tf.float32)
    assert batches.element_spec[1] == tf.TensorSpec((64,), tf.int32)
    images, _ = drawn(batches.take(20))
    assert np.median(images) == pytest.approx(0, abs=0.05)  # background
    assert 0.8 < np.quantile(images, 0.98) < 1.2  # ink
    assert images.min() > -0.8
    assert images.max() < 1.8


def test_training_sees_every_image_once_per_pass_in_new_orders(parts):
    part = parts["validation"]
    still = Warp(rotation=0, scale=0, shear=0, translation=0, blur=0, noise=0)
    part = dataclasses.replace(part, augment=glyphs.warping(still))
    batches = part.training_batches(len(part), seed=0).take(2)
    passes = [(np.round(x * 255).astype(np.uint8)[..., 0], y.numpy()) for x, y in batches]

    def content(images, labels):
        return [(i.tobytes(), label) for i, label in zip(images, labels.tolist(), strict=True)]

    everything = content(images_of(part), part.labels)
    orders = [content(*one) for one in passes]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(everything)
    assert orders[0] != orders[1]


def test_shuffling_is_as_good_as_chance(parts):
    """Neighbours of one class: sum of c (c - 1) / (n (n - 1)) by chance, for class sizes c.

    About 9 of 1,673 pairs per pass, so 2.5 times that is 4 standard deviations away.
    """
    part = parts["validation"]
    n, sizes = len(part), np.bincount(part.labels)
    chance = np.sum(sizes * (sizes - 1)) / (n * (n - 1))
    for seed in (0, 1, 5):
        _, labels = drawn(part.training_batches(n, seed).take(4))
        for order in labels.reshape(4, n):
            assert np.mean(order[1:] == order[:-1]) < 2.5 * chance
            assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 0.1


def test_training_is_a_function_of_seed_and_step(parts):
    first = drawn(parts["train"].training_batches(32, seed=5).take(4))
    again = drawn(parts["train"].training_batches(32, seed=5).take(4))
    other = drawn(parts["train"].training_batches(32, seed=6).take(4))
    resumed = drawn(parts["train"].training_batches(32, seed=5, start_step=2).take(2))
    for one, two, later in zip(first, again, resumed, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one[64:], later)
    assert np.mean(first[1] == other[1]) < 0.1


def test_evaluation_gives_every_image_its_views(parts):
    part = parts["validation"]
    batches = part.evaluation_batches(views=3, batch_size=100, seed=0)
    assert batches.cardinality() == -(-3 * len(part) // 100)
    images, labels = drawn(batches)
    np.testing.assert_array_equal(labels, np.tile(part.labels, 3))
    clean = images_of(part) / 255
    views = images[..., 0].reshape(3, *clean.shape)
    for one, two in itertools.combinations([clean, *views], 2):
        assert (np.abs(one - two).mean(axis=(1, 2)) > 0.001).all()
    # Warped views still look like their own image, more than like others.
    own = np.abs(views[0] - clean).mean()
    assert own < 0.7 * np.abs(views[0] - np.roll(clean, len(clean) // 2, axis=0)).mean()


def test_streams_are_those_of_the_records():
    """Toy images through every stream: other numbers would mean other results than recorded."""
    place = np.arange(8)
    images = (7 * np.arange(300)[:, None, None] + 31 * place[:, None] + 11 * place) % 256
    toy = glyphs._from_arrays(
        images=images.astype(np.uint8),
        labels=np.repeat(np.arange(75, dtype=np.int32), 4),
        code_points=np.arange(65, 140, dtype=np.int32),
        fonts=np.array(["a", "b", "c", "d"]),
        font_ids=np.tile(np.arange(4, dtype=np.int32), 75),
    )
    for batches, first_labels, pixels, mean in [
        (
            toy.training_batches(8, seed=3, start_step=40),
            [18, 42, 64, 35, 8, 7, 19, 68],
            [0.38534, 0.17610, 0.79593],
            0.345828,
        ),
        (
            toy.evaluation_batches(512, views=2),
            [0, 0, 0, 0, 1, 1, 1, 1],
            [0.28772, 0.21379, 0.22478],
            0.362177,
        ),
        (
            toy.stream(700, 512, seed=1),
            [50, 7, 71, 1, 42, 73, 56, 8],
            [0.81321, 0.24763, 0.81887],
            0.362536,
        ),
    ]:
        images, labels = next(iter(batches))
        assert labels[:8].numpy().tolist() == first_labels
        np.testing.assert_allclose(images.numpy()[[0, 3, -1], 2, 5, 0], pixels, atol=1e-4)
        assert float(tf.reduce_mean(images)) == pytest.approx(mean, abs=1e-4)


def test_a_million_distractors_are_made_as_they_are_drawn(parts):
    batches = parts["distractors"].stream(1_000_000, 256, seed=0)
    assert batches.cardinality() == 3907
    images, labels = drawn(batches.take(2 * len(parts["distractors"]) // 256 + 1))
    # The second pass shows the same images again, warped anew.
    assert len({image.tobytes() for image in images}) == len(images)
    counts = np.bincount(labels, minlength=parts["distractors"].num_classes)
    assert (counts >= 2 * np.bincount(parts["distractors"].labels)).all()


def test_contact_sheet(parts, tmp_path):
    path = tmp_path / "glyphs.png"
    glyphs.contact_sheet(parts["test"], path, rows=6, views=4)
    assert list(tmp_path.iterdir()) == [path]
    assert 10_000 < path.stat().st_size < 300_000
    picture = np.asarray(PIL.Image.open(path))
    assert picture.shape[1] > picture.shape[0] > 200
    assert (picture < 64).mean() > 0.02
    assert (picture > 192).mean() > 0.5


def test_bad_arguments_are_named(full, parts, tmp_path):
    part = parts["validation"]
    other = dataclasses.replace(part, name="photos", source=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call, match in [
            (lambda: glyphs.load(tmp_path, size=4), "size=4: expected an integer >= 8"),
            (lambda: glyphs.load(tmp_path, min_fonts=0), "min_fonts=0"),
            (lambda: glyphs.split(full, seed=-1), "seed=-1"),
            (lambda: glyphs.split(full, test=-1), "test=-1"),
            (lambda: glyphs.split(full, test=10_000), "expected fewer classes"),
            (lambda: glyphs.contact_sheet(part, tmp_path / "x.png", rows=0), "rows=0"),
            (lambda: glyphs.contact_sheet(other, tmp_path / "x.png"), "photos: expected glyphs"),
        ]:
            with pytest.raises(ValueError, match=match):
                call()
    assert not list(tmp_path.iterdir())
