"""Words: which letters and words each part has, how they are drawn, and that drawing repeats."""

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from sparse_embed.datasets import glyphs, words


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    return glyphs.load(tmp_path_factory.mktemp("cache"))


SIZES = {"train": 3000, "validation": 100, "test": 200, "distractors": 50_000}


@pytest.fixture(scope="module")
def parts(letters):
    return words.split(letters, **SIZES)


def spelt(letters, part):
    """The labels of the three letters of each example, and their typefaces."""
    n = len(letters)
    images = [part.rows // n**2, part.rows // n % n, part.rows % n]
    fonts = glyphs.source_of(letters).font_ids
    return (
        np.stack([letters.labels[one] for one in images], axis=1),
        np.stack([fonts[one] for one in images], axis=1),
    )


def test_no_letter_is_in_two_parts(letters, parts):
    used = {name: set(spelt(letters, part)[0].ravel().tolist()) for name, part in parts.items()}
    assert sum(map(len, used.values())) == len(set().union(*used.values()))
    for name, count in words.LETTERS.items():
        assert 0.8 * count < len(used[name]) <= count
    assert len(used["train"]) > 1700
    for letter in set().union(*used.values()):
        assert chr(int(letters.class_names[letter][2:], 16)).isalpha()


def test_a_class_is_a_word_in_all_its_typefaces(letters, parts):
    available = [set() for _ in range(letters.num_classes)]
    for label, font in zip(letters.labels, glyphs.source_of(letters).font_ids, strict=True):
        available[label].add(int(font))
    for name, classes in (("train", 3000), ("validation", 100), ("test", 200)):
        part = parts[name]
        assert part.num_classes == classes
        word, fonts = spelt(letters, part)
        assert (fonts == fonts[:, :1]).all()
        for label in range(0, classes, 17):
            (found,) = set(map(tuple, word[part.labels == label].tolist()))
            shared = set.intersection(*(available[letter] for letter in found))
            assert set(fonts[part.labels == label, 0].tolist()) == shared
            assert len(shared) >= 4
            names = " ".join(letters.class_names[letter] for letter in found)
            assert part.class_names[label] == names
        assert len(np.unique(word, axis=0)) == classes


def test_every_distractor_is_a_class_of_its_own(letters, parts):
    word, fonts = spelt(letters, parts["distractors"])
    assert len(word) == 50_000
    assert len(np.unique(word, axis=0)) == len(word)
    assert (fonts == fonts[:, :1]).all()
    assert len(np.unique(fonts)) >= 16  # two typefaces draw few letters
    assert (parts["distractors"].labels == -1).all()


def test_there_are_more_than_a_million_distractors_in_little_memory(letters):
    part = words.split(letters)["distractors"]
    assert len(part) == len(np.unique(part.rows)) == 1_200_000
    assert part.rows.nbytes + part.labels.nbytes == 12 * 1_200_000


def area_mean(image, height, width):
    """Each pixel is the mean of the area that it covers, by the overlap of intervals."""

    def weights(new, old):
        edges = np.linspace(0, old, new + 1)
        low, high = edges[:-1, None], edges[1:, None]
        place = np.arange(old)[None]
        overlap = np.clip(np.minimum(high, place + 1) - np.maximum(low, place), 0, None)
        return overlap * new / old

    return weights(height, image.shape[0]) @ image @ weights(width, image.shape[1]).T


def test_letters_stand_side_by_side(letters, parts):
    rows = parts["test"].rows[::97]
    found = parts["test"].source.compose(tf.constant(rows)).numpy()
    assert found.shape == (len(rows), 24, 48, 1)
    assert found.dtype == np.uint8
    drawn, n = glyphs.source_of(letters).images, len(letters)
    for image, row in zip(found, rows.tolist(), strict=True):
        wanted = np.zeros((24, 48))
        for place, letter in enumerate((row // n**2, row // n % n, row % n)):
            wanted[2:22, 16 * place : 16 * place + 16] = area_mean(drawn[letter], 20, 16)
        np.testing.assert_allclose(image[..., 0], wanted, atol=0.51)


def test_the_same_seed_gives_the_same_words(letters, parts):
    again, other = (words.split(letters, seed, **SIZES) for seed in (0, 1))
    for name, part in parts.items():
        np.testing.assert_array_equal(again[name].rows, part.rows)
        np.testing.assert_array_equal(again[name].labels, part.labels)
        assert not np.array_equal(other[name].rows, part.rows)
    for part in (parts, again):
        images, _ = next(iter(part["train"].training_batches(32, seed=3, start_step=5)))
        part["batch"] = images.numpy()
    np.testing.assert_array_equal(parts.pop("batch"), again["batch"])


def test_distractors_are_a_stream(parts):
    """A longer one begins with a shorter one, whatever the batches; each word comes once."""
    part = parts["distractors"]
    long = np.concatenate([images for images, _ in part.stream(1500, 400, seed=1)])
    short = np.concatenate([images for images, _ in part.stream(700, 512, seed=1)])
    assert long.shape == (1500, 24, 48, 1)
    np.testing.assert_array_equal(long[:700], short)


def test_the_picture_shows_words_and_their_views(parts, tmp_path):
    words.contact_sheet(parts["test"], tmp_path / "words.png", rows=3, columns=4)
    picture = np.asarray(PIL.Image.open(tmp_path / "words.png"))
    assert picture.shape == (3 * 48, 9 * 96)
    cells = picture.reshape(3, 48, 9, 96).swapaxes(1, 2)
    assert (cells[:, 4] == 255).all()  # the gap
    assert (cells[:, [0, 1, 2, 3, 5, 6, 7, 8]].min(axis=(2, 3)) < 150).all()  # ink, perhaps blurred


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"test": 800_001}, "test=800001: expected .*<= 800000"),
        ({"train": -1}, "train=-1: expected an integer >= 0"),
        ({"seed": 0.5}, "seed=0.5"),
    ],
)
def test_bad_sizes_are_refused_by_name(letters, given, message):
    with pytest.raises(ValueError, match=message):
        words.split(letters, **given)


def test_too_few_letters_are_refused(letters):
    few = letters.select(np.arange(300))
    with pytest.raises(ValueError, match=r"\d letters: expected more than 700"):
        words.split(few)
