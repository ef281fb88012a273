"""Words of three letters: a data set without a download, whose classes have no practical end.

The task is to find the same word, in a typeface and a view that one has not seen, among a million
others. A class is a sequence of three letters, which are among the code points of `glyphs`; an
image is that word set in one typeface, its letters condensed and side by side. A few hundred
letters make millions of words: more training classes than any embedding has dimensions, and a
million distractors, each a class of its own. No letter of one part occurs in another.

    parts = split(glyphs.load())
    for images, labels in parts["train"].training_batches(batch_size=256, seed=0):
        ...

Words are put together in the graph when a batch needs them; memory holds the letters, and 12 bytes
for each image of a part.
"""

import os
import unicodedata

import numpy as np
import tensorflow as tf

from sparse_embed.common.checks import check_number
from sparse_embed.common.files import atomic_path
from sparse_embed.datasets.examples import Examples, Source
from sparse_embed.datasets.glyphs import source_of, warping

LENGTH = 3  # letters of a word
LETTERS = {"validation": 100, "test": 200, "distractors": 400}  # training has all others
DISTRACTORS = 1_200_000
MIN_TYPEFACES = 4  # a word has at least this many images
_KINDS = {"Ll", "Lu", "Lt", "Lo"}  # Unicode's letters, but for those that modify others
_CHUNK = 1 << 16  # words drawn at a time


class WordSource(Source):
    """Words made from the images of letters: row (a n + b) n + c is letter images a, b and c of n.

    An image is three quarters as high as a letter's, and half as wide for each letter.

    Args:
        letters: (n, size, size) uint8, as `glyphs` draws them; `size` is a multiple of 8.
    """

    def __init__(self, letters: np.ndarray):
        size = letters.shape[1]
        self.shape = (size * 3 // 4, LENGTH * size // 2, 1)
        condensed = tf.image.resize(letters[..., None], (size * 5 // 8, size // 2), method="area")
        self._letters = tf.cast(tf.round(condensed), tf.uint8)

    def load(self, rows: tf.data.Dataset, total: int) -> tf.data.Dataset:
        """Puts the words together; see `examples.Source`."""
        del total
        return rows.map(
            lambda chosen, labels: (self.compose(chosen), labels),
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    def compose(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns the images of some rows: (n, height, width, 1) uint8, 0 background, 255 ink."""
        count, height = self._letters.shape[0], self._letters.shape[1]
        places = [rows // count**place % count for place in reversed(range(LENGTH))]
        above = (self.shape[0] - height) // 2
        edges = [[0, 0], [above, self.shape[0] - height - above], [0, 0], [0, 0]]
        return tf.pad(tf.concat([tf.gather(self._letters, p) for p in places], axis=2), edges)


def split(
    glyphs: Examples,
    seed: int = 0,
    train: int = 20_000,
    validation: int = 500,
    test: int = 1000,
    distractors: int = DISTRACTORS,
) -> dict[str, Examples]:
    """Divides the letters among the parts and draws the words of each.

    Letters are divided at random: 100 for validation, 200 for testing, 400 for the distractors,
    the others, about 1,860, for training. The distractors are different words in one typeface each;
    they have no labels.

    Args:
        glyphs: all letters, as `glyphs.load` returns them.
        seed: decides which letters and words go where.
        train: number of training classes.
        validation: number of validation classes.
        test: number of test classes.
        distractors: number of distractors.

    Returns:
        The parts "train", "validation", "test" and "distractors".
    """
    sizes = {"train": train, "validation": validation, "test": test, "distractors": distractors}
    for name, size in {"seed": seed, **sizes}.items():
        check_number(name, size, integer=True, minimum=0)
    points = [chr(int(name.removeprefix("U+"), 16)) for name in glyphs.class_names]
    known = np.flatnonzero([unicodedata.category(point) in _KINDS for point in points])
    if len(known) <= sum(LETTERS.values()):
        raise ValueError(
            f"glyphs with {len(known)} letters: expected more than {sum(LETTERS.values())}"
        )
    random = np.random.Generator(np.random.PCG64(seed))
    groups = np.split(random.permutation(known), np.cumsum([*LETTERS.values()]))
    letters = dict(zip((*LETTERS, "train"), groups, strict=True))
    source = WordSource(source_of(glyphs).images[glyphs.rows])
    images = _images_by_typeface(glyphs)
    parts = {}
    for name, size in sizes.items():
        # Few of the possible words, so that drawing at random finds them.
        check_number(name, size, maximum=len(letters[name]) ** LENGTH // 10)
        chosen = _words(letters[name], images, size, random)
        if name == "distractors":
            parts[name] = _distractors(chosen, images, source, random)
        else:
            parts[name] = _labelled(name, chosen, images, source, glyphs.class_names)
    return parts


def _images_by_typeface(glyphs: Examples) -> np.ndarray:
    """Returns the image of each letter in each typeface, (letters, typefaces) int64; -1 if none."""
    source = source_of(glyphs)
    table = np.full((glyphs.num_classes, len(source.fonts)), -1, np.int64)
    table[glyphs.labels, source.font_ids[glyphs.rows]] = np.arange(len(glyphs))
    return table


def _words(
    letters: np.ndarray, images: np.ndarray, count: int, random: np.random.Generator
) -> np.ndarray:
    """Returns different words whose letters share enough typefaces, (count, LENGTH)."""
    drawn = images[letters] >= 0
    codes = np.empty(0, np.int64)
    while len(codes) < count:
        places = random.integers(len(letters), size=(_CHUNK, LENGTH))
        shared = np.logical_and.reduce(drawn[places], axis=1).sum(axis=1)
        found = places[shared >= MIN_TYPEFACES] @ len(letters) ** np.arange(LENGTH)
        codes = np.concatenate([codes, found])
        codes = codes[np.sort(np.unique(codes, return_index=True)[1])]  # the first of each
    places = codes[:count, None] // len(letters) ** np.arange(LENGTH) % len(letters)
    return letters[places]


def _rows(words: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Returns the row of each word in each typeface, (n, typefaces) int64; -1 if none."""
    drawn = images[words]  # (n, LENGTH, typefaces)
    factors = (images.max() + 1) ** np.arange(LENGTH)[::-1, None]
    return np.where((drawn >= 0).all(axis=1), (drawn * factors).sum(axis=1), -1)


def _labelled(
    name: str,
    words: np.ndarray,
    images: np.ndarray,
    source: WordSource,
    names: tuple[str, ...],
) -> Examples:
    """Returns words in all their typefaces, a class each."""
    rows = _rows(words, images)
    labels, typefaces = np.nonzero(rows >= 0)
    return Examples(
        name=f"words {name}",
        shape=source.shape,
        source=source,
        rows=rows[labels, typefaces],
        labels=labels.astype(np.int32),
        class_names=tuple(" ".join(names[letter] for letter in word) for word in words.tolist()),
        augment=warping(),
        view=warping(),
    )


def _distractors(
    words: np.ndarray, images: np.ndarray, source: WordSource, random: np.random.Generator
) -> Examples:
    """Returns words in one typeface each, without labels."""
    rows = np.empty(len(words), np.int64)
    for start in range(0, len(words), _CHUNK):
        chunk = _rows(words[start : start + _CHUNK], images)
        chosen = np.where(chunk >= 0, random.random(chunk.shape), -1.0).argmax(axis=1)
        rows[start : start + _CHUNK] = chunk[np.arange(len(chunk)), chosen]
    return Examples(
        name="words distractors",
        shape=source.shape,
        source=source,
        rows=rows,
        labels=np.full(len(rows), -1, np.int32),
        class_names=(),
        augment=warping(),
        view=warping(),
    )


def contact_sheet(
    words: Examples,
    path: str | os.PathLike[str],
    rows: int = 10,
    columns: int = 8,
    seed: int = 0,
) -> None:
    """Writes a picture (PNG) of some words: left as the typefaces draw them, right warped.

    Args:
        words: a part with labels.
        path: the file to write.
        rows: number of words, those in most typefaces among a random half of all.
        columns: images on each side.
        seed: of the choice and the warps.
    """
    from PIL import Image  # comes with matplotlib

    random = np.random.Generator(np.random.PCG64(seed))
    some = random.permutation(words.num_classes)[: max(rows, words.num_classes // 2)]
    counts = np.bincount(words.labels, minlength=words.num_classes)[some]
    height, width, _ = words.shape
    sheet = np.zeros((rows * height, (2 * columns + 1) * width), np.float32)
    for row, label in enumerate(some[np.argsort(-counts, kind="stable")[:rows]]):
        members = np.flatnonzero(words.labels == label)
        chosen = np.resize(random.permutation(members), columns)
        drawn = words.source.compose(tf.constant(words.rows[chosen]))  # type: ignore[attr-defined]
        warped = warping()(drawn, tf.constant([seed, row], tf.int64))
        for side, images in ((0, drawn[: len(members)] / 255), (columns + 1, warped)):
            place = slice(side * width, (side + len(images)) * width)
            sheet[row * height : (row + 1) * height, place] = np.concatenate(images[..., 0], axis=1)
    ink = np.round(255 * (1 - np.clip(sheet, 0, 1))).astype(np.uint8)
    with atomic_path(path) as temporary:
        Image.fromarray(ink.repeat(2, 0).repeat(2, 1)).save(temporary, format="png", optimize=True)
