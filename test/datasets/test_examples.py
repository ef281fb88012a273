"""Splits, batches, shuffling and augmentation of examples in memory."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.datasets.examples import (
    ArraySource,
    Examples,
    hold_out,
    shuffled,
    split_by_class,
)
from sparse_embed.datasets.shift_flip import random_flip, random_shift_flip


def numbers(count: int, num_classes: int) -> Examples:
    """Example i is the vector (i,), so that it can be told apart in a batch."""
    return Examples(
        name="numbers",
        shape=(1,),
        source=ArraySource(np.arange(count, dtype=np.float32)[:, None]),
        rows=np.arange(count),
        labels=(np.arange(count) % num_classes).astype(np.int32),
        class_names=tuple(f"class {i}" for i in range(num_classes)),
    )


def draw(examples, batch_size, steps, **options):
    batches = examples.training_batches(batch_size, **options).take(steps)
    return [(x[:, 0].astype(int), y) for x, y in batches.as_numpy_iterator()]


def test_every_example_comes_once_per_pass():
    batches = draw(numbers(10, 5), 4, 5, seed=3)  # 20 examples: two passes
    stream = np.concatenate([x for x, _ in batches])
    assert sorted(stream[:10]) == sorted(stream[10:]) == list(range(10))
    assert stream[:10].tolist() != stream[10:].tolist()
    for x, y in batches:
        np.testing.assert_array_equal(y, x % 5)


def test_batches_depend_on_the_seed_alone_and_can_be_taken_up():
    examples = numbers(100, 5)
    first = draw(examples, 8, 6, seed=1)
    again = draw(examples, 8, 2, seed=1, start_step=4)
    other = draw(examples, 8, 6, seed=2)
    for (x, _), (y, _) in zip(first[4:], again, strict=True):
        np.testing.assert_array_equal(x, y)
    assert any((x != y).any() for (x, _), (y, _) in zip(first, other, strict=True))


@pytest.mark.parametrize("seed", [0, 1])
def test_shuffling_is_even(seed):
    """Neither the order nor successive passes are correlated: |r| < 5 / sqrt(n) by far."""
    count = 20000
    positions = tf.range(3 * count, dtype=tf.int64)
    passes = shuffled(positions, count, seed).numpy().reshape(3, count)
    assert all(len(np.unique(row)) == count for row in passes)
    correlations = np.corrcoef(np.vstack([passes, np.arange(count)]))
    assert np.abs(correlations - np.eye(4)).max() < 5 / np.sqrt(count)


def test_evaluation_is_in_order_and_whole():
    dataset = numbers(10, 5).evaluation_batches(4)
    batches = list(dataset.as_numpy_iterator())
    assert len(dataset) == 3
    assert [len(y) for _, y in batches] == [4, 4, 2]
    assert np.concatenate([x for x, _ in batches])[:, 0].tolist() == list(range(10))


def test_order_of_all_time():
    """What was recorded was drawn in this order, of seed 3 from batch 7 on."""
    drawn = draw(numbers(10, 5), 4, 2, seed=3, start_step=7)
    assert [x.tolist() for x, _ in drawn] == [[6, 1, 0, 3], [4, 5, 1, 7]]


def shaken(count: int, num_classes: int) -> Examples:
    """Numbers that evaluation sees with a random fraction: what is before the point stays."""

    def view(images, seed):
        return images + 0.9 * tf.random.stateless_uniform((images.shape[0], 1), seed)

    return dataclasses.replace(numbers(count, num_classes), view=view)


def collect(batches):
    values, labels = zip(*batches.as_numpy_iterator(), strict=True)
    return np.concatenate(values)[:, 0], np.concatenate(labels)


def test_evaluation_gives_every_example_its_views():
    examples = shaken(300, 5)
    batches = examples.evaluation_batches(100, views=3)
    assert len(batches) == 9
    values, labels = collect(batches)
    np.testing.assert_array_equal(np.floor(values), np.tile(np.arange(300), 3))
    np.testing.assert_array_equal(labels, np.tile(examples.labels, 3))
    fractions = (values % 1).reshape(3, 300)
    assert np.abs(np.corrcoef(fractions) - np.eye(3)).max() < 5 / np.sqrt(300)
    for batch_size in (7, 256, 1000):
        again, _ = collect(examples.evaluation_batches(batch_size, views=3, seed=1))
        np.testing.assert_array_equal(again, values)
    first, _ = collect(examples.evaluation_batches(64))
    np.testing.assert_array_equal(first, values[:300])
    other, _ = collect(examples.evaluation_batches(64, seed=2))
    assert (other != first).all()


def test_evaluation_and_streams_can_begin_in_the_middle():
    """In any division the items are those of the whole; warps too."""
    whole, labels = collect(shaken(300, 5).evaluation_batches(64, views=3))
    for start, count in ((0, 256), (256, 512), (768, 500)):
        batches = shaken(300, 5).evaluation_batches(100, views=3, start=start, count=count)
        values, some = collect(batches)
        np.testing.assert_array_equal(values, whole[start : start + count])
        np.testing.assert_array_equal(some, labels[start : start + count])
    values, _ = collect(numbers(10, 5).evaluation_batches(4, start=3, count=5))
    assert values.tolist() == [3, 4, 5, 6, 7]
    stream, _ = collect(shaken(300, 5).stream(1000, 64, seed=4))
    values, _ = collect(shaken(300, 5).stream(300, 100, seed=4, start=512))
    np.testing.assert_array_equal(values, stream[512:812])


def test_without_a_view_every_example_comes_once_and_as_it_is():
    values, _ = collect(numbers(10, 5).evaluation_batches(4, views=3, seed=8))
    assert values.tolist() == list(range(10))


def test_views_are_for_evaluation_alone():
    plain, viewed = (draw(examples, 8, 2, seed=1) for examples in (numbers(20, 5), shaken(20, 5)))
    for (x, _), (y, _) in zip(plain, viewed, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 700])
def test_streams_are_counted_exactly_and_begin_alike(count):
    examples = shaken(300, 5)
    batches = examples.stream(count, 100, seed=4)
    assert len(batches) == -(-count // 100)
    assert sum(len(labels) for _, labels in batches) == count
    if count:
        values, labels = collect(batches)
        longer = examples.stream(5000, 64, seed=4).take(-(-count // 64))
        np.testing.assert_array_equal(values, collect(longer)[0][:count])
        np.testing.assert_array_equal(labels, np.floor(values) % 5)


def test_a_stream_goes_on_over_passes_in_new_orders_and_views():
    values, _ = collect(shaken(300, 5).stream(600, 128, seed=0))
    passes = np.floor(values).reshape(2, 300)
    np.testing.assert_array_equal(np.sort(passes), [np.arange(300)] * 2)
    assert np.abs(np.corrcoef(passes)[0, 1]) < 5 / np.sqrt(300)
    assert len(np.unique(values % 1)) > 590
    assert (collect(shaken(300, 5).stream(600, 128, seed=1))[0] != values).any()


def test_a_stream_without_a_view_does_not_depend_on_its_batches():
    streams = [collect(numbers(10, 5).stream(25, size, seed=0))[0] for size in (4, 25, 1000)]
    assert sorted(streams[0][:10]) == sorted(streams[0][10:20]) == list(range(10))
    np.testing.assert_array_equal(streams[0], streams[1])
    np.testing.assert_array_equal(streams[0], streams[2])


def test_a_stream_is_made_as_it_is_drawn():
    batches = shaken(300, 5).stream(10**12, 100, seed=0)
    assert len(batches) == 10**10
    assert len(collect(batches.take(3))[0]) == 300


def test_split_by_class_shares_no_class_and_renumbers():
    examples = numbers(60, 12)
    parts = split_by_class(examples, validation=2, test=3, seed=5)
    assert [part.num_classes for part in parts] == [7, 2, 3]
    assert sorted(sum((part.class_names for part in parts), ())) == sorted(examples.class_names)
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(60))
    for part in parts:
        assert sorted(set(part.labels)) == list(range(part.num_classes))
        for row, label in zip(part.rows, part.labels, strict=True):
            assert part.class_names[label] == f"class {row % 12}"
    again = split_by_class(examples, validation=2, test=3, seed=5)
    np.testing.assert_array_equal(parts.train.rows, again.train.rows)


def test_hold_out_takes_as_many_of_each_class():
    train, held = hold_out(numbers(60, 12), per_class=2, seed=1)
    assert set(collections.Counter(held.labels.tolist()).values()) == {2}
    assert set(collections.Counter(train.labels.tolist()).values()) == {3}
    assert sorted([*train.rows, *held.rows]) == list(range(60))
    assert held.rows.tolist() != hold_out(numbers(60, 12), per_class=2, seed=2)[1].rows.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: split_by_class(x, test=12), "validation=0, test=12: expected fewer classes"),
        (lambda x: hold_out(x, per_class=5), "per_class=5: expected an integer >= 0 <= 4"),
        (lambda x: x.training_batches(0, seed=0), "batch_size=0"),
        (lambda x: x.training_batches(2, seed=-1), "seed=-1"),
        (lambda x: x.training_batches(2, seed=0.5), "seed=0.5"),
        (lambda x: x.training_batches(2, seed=0, start_step=-1), "start_step=-1"),
        (lambda x: x.evaluation_batches(0), "batch_size=0"),
        (lambda x: x.evaluation_batches(2, views=0), "views=0"),
        (lambda x: x.evaluation_batches(2, seed=-1), "seed=-1"),
        (lambda x: x.evaluation_batches(2, start=-1), "start=-1"),
        (lambda x: shaken(10, 5).evaluation_batches(2, start=4), "start=4: .* multiple of 256"),
        (lambda x: x.stream(-1, 2, seed=0), "count=-1"),
        (lambda x: x.stream(8, 4, seed=0, start=2), "start=2: .* multiple of 4"),
        (lambda x: x.stream(1, 0, seed=0), "batch_size=0"),
        (lambda x: x.take(np.zeros(0, int)).training_batches(2, seed=0), "at least one example"),
        (lambda x: x.take(np.zeros(0, int)).evaluation_batches(2), "at least one example"),
        (lambda x: x.take(np.zeros(0, int)).stream(2, 2, seed=0), "at least one example"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(numbers(60, 12))


def test_images_are_normalised_by_255():
    pixels = np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1)
    examples = Examples(
        "grey", (1, 1, 1), ArraySource(pixels), np.arange(3), np.zeros(3, np.int32), ("a",)
    )
    ((images, _),) = examples.evaluation_batches(3).as_numpy_iterator()
    np.testing.assert_allclose(images.ravel(), [0.0, 0.2, 1.0], rtol=1e-7)


def reference_shift_flip(image: np.ndarray, dx: int, dy: int, flip: bool) -> np.ndarray:
    """Pad by 4 with black, crop, mirror: as it is usually written."""
    height, width, _ = image.shape
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
    crop = padded[4 + dy : 4 + dy + height, 4 + dx : 4 + dx + width]
    return crop[:, ::-1] if flip else crop


def test_shift_flip_is_pad_crop_mirror():
    """Each result is one of the 9 x 9 x 2 that padding, cropping and mirroring can give."""
    image = np.random.default_rng(0).integers(1, 256, (12, 10, 3), np.uint8)
    results = random_shift_flip(tf.constant(np.stack([image] * 600)), tf.constant([1, 2]), 4)
    possible = {
        reference_shift_flip(image, dx, dy, flip).tobytes(): (dx, dy, flip)
        for dx in range(-4, 5)
        for dy in range(-4, 5)
        for flip in (False, True)
    }
    seen = collections.Counter(possible[result.tobytes()] for result in results.numpy())
    for axis, values in ((0, range(-4, 5)), (1, range(-4, 5)), (2, (False, True))):
        marginal = collections.Counter()
        for move, times in seen.items():
            marginal[move[axis]] += times
        expected = 600 / len(values)
        # Within 5 standard deviations of a fair draw.
        assert all(abs(marginal[v] - expected) < 5 * np.sqrt(expected) for v in values)


def test_flip_alone_keeps_every_pixel_and_follows_its_seed():
    images = tf.constant(np.random.default_rng(0).integers(0, 256, (64, 7, 6, 1), np.uint8))
    flipped = random_flip(images, tf.constant([3, 4])).numpy()
    mirrored = [(a == b[:, ::-1]).all() for a, b in zip(flipped, images.numpy(), strict=True)]
    same = [(a == b).all() for a, b in zip(flipped, images.numpy(), strict=True)]
    assert [not m for m in mirrored] == same
    assert 16 < sum(mirrored) < 48
    np.testing.assert_array_equal(flipped, random_flip(images, tf.constant([3, 4])))
    assert (flipped != random_flip(images, tf.constant([3, 5])).numpy()).any()


def test_training_alone_is_augmented_by_seed_and_step():
    def mark(images, seed):
        return images * 0 + tf.cast(1000 * seed[0] + seed[1], images.dtype)

    marked = dataclasses.replace(numbers(12, 3), augment=mark)
    batches = iter(marked.training_batches(4, seed=7, start_step=3))
    for step in (3, 4):
        np.testing.assert_array_equal(next(batches)[0], np.full((4, 1), 7000 + step))
    for finite in (marked.evaluation_batches(5), marked.stream(10, 5, seed=1)):
        assert {float(x) for images, _ in finite for x in images[:, 0]} <= {*range(12)}


def test_the_last_batch_is_made_without_a_word_from_tensorflow(capfd):
    """It would call it an error, on stderr, that a part of a block is joined with another."""
    # 48 are left after a block of 256: as many bytes as TensorFlow does not copy.
    made = dataclasses.replace(numbers(304, 5), view=lambda images, seeds: images + 0.5)
    for batches in (made.evaluation_batches(200), made.stream(304, 200, seed=1)):
        assert [len(labels) for _, labels in batches] == [200, 104]
    assert "RefCount" not in capfd.readouterr().err
