"""Glyphs: the data set that needs no download, from the typefaces that matplotlib ships.

A class is a Unicode code point, an image is how one typeface draws it: thousands of fine-grained
classes of a handful of images each, which random warps turn into any number of views. Classes are
split, not images, so that testing is on classes never seen in training, as with faces.

    part = split(load())
    for images, labels in part["train"].training_batches(batch_size=256, seed=0):
        ...

Evaluation warps every view too: typefaces may share an image, and duplicates would make retrieval
easy. Three views of the 1,134 test classes are about 30,000 items.

`python -m sparse_embed.datasets.glyphs` prints the sizes and the speed of the data set.
"""

import collections
import functools
import os
import pathlib
import time
import unicodedata
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from sparse_embed.common.arrays import read_npz
from sparse_embed.common.checks import check_number
from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path, cache_folder
from sparse_embed.common.progress import progress_bar
from sparse_embed.datasets.augment import Warp, augment
from sparse_embed.datasets.examples import ArraySource, Augmentation, Examples, normalise

# Typefaces that encode Unicode faithfully. Left out: Computer Modern (`cm*`), which puts its glyphs
# at other code points, STIX's private-use and large-bracket fonts, and the font of last resort,
# which draws whole blocks alike.
_TYPEFACES = ("DejaVu*.ttf", "STIXGeneral*.ttf")
# Control, format, private use, surrogate and space: nothing to see, or no agreed meaning.
_INVISIBLE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
_FORMAT = 1  # of the cache; raise it when the rendering changes
_ARRAYS = ("images", "labels", "code_points", "fonts", "font_ids")  # of the cache


class GlyphSource(ArraySource):
    """Glyphs in memory, with the typeface of each.

    Attributes:
        images: (n, size, size) uint8, 0 background, 255 ink.
        fonts: names of the typefaces.
        font_ids: (n,) int32, index into `fonts` of each image.
    """

    def __init__(self, images: np.ndarray, fonts: tuple[str, ...], font_ids: np.ndarray):
        super().__init__(images[..., None])
        self.images, self.fonts, self.font_ids = images, fonts, font_ids

    def compose(self, rows: np.ndarray) -> np.ndarray:
        """Returns the images of some rows: (n, size, size, 1) uint8, 0 background, 255 ink."""
        images: np.ndarray = self.images[rows][..., None]
        return images


def source_of(examples: Examples) -> GlyphSource:
    """Returns the source of some glyphs, which holds images and typefaces by row."""
    if not isinstance(examples.source, GlyphSource):
        raise ValueError(f"{examples.name}: expected glyphs")
    return examples.source


def warping(warp: Warp | None = None) -> Augmentation:
    """Returns a function that warps a batch of glyphs, by `Warp()` if None.

    It turns (batch, size, size, 1) uint8 into float32, background 0 and ink 1 before unclipped
    noise.
    """
    return functools.partial(_warp, warp=warp or Warp())


def _warp(images: tf.Tensor, seed: tf.Tensor, warp: Warp) -> tf.Tensor:
    return augment(normalise(images[..., 0]), seed, warp)[..., None]


def load(
    cache_dir: str | os.PathLike[str] | None = None, size: int = 32, min_fonts: int = 4
) -> Examples:
    """Returns the data set, from the cache if it is there, else rendered and cached.

    Images are ordered by class, then by typeface; the classes' names are code points: "U+0041".

    Args:
        cache_dir: folder of the cache file; `sparse_embed` in `$XDG_CACHE_HOME` or `~/.cache` if
            None. If it cannot be written, a warning says so and the data set is returned anyway.
        size: width and height of an image.
        min_fonts: a class has at least this many images.
    """
    import matplotlib

    cache_dir = cache_folder() if cache_dir is None else cache_dir
    name = f"glyphs{_FORMAT}-matplotlib{matplotlib.__version__}-size{size}-fonts{min_fonts}.npz"
    path = pathlib.Path(cache_dir) / name
    cached = _read_cache(path, size)
    if cached is not None:
        return cached
    glyphs = render(size, min_fonts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            np.savez_compressed(temporary, **_to_arrays(glyphs))
    except OSError as error:
        warnings.warn(f"cache_dir={cache_dir}: glyphs are not cached: {error}", stacklevel=2)
    return glyphs


def _read_cache(path: pathlib.Path, size: int) -> Examples | None:
    """Returns the content of the cache file, or None if it is absent, broken or of another kind."""
    try:
        arrays = read_npz(path, _ARRAYS, expected="a cache of glyphs")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, DataError) as error:
        warnings.warn(f"{path}: broken cache file, rendering again: {error}", stacklevel=3)
        return None
    images, labels, points, fonts, font_ids = (arrays[name] for name in _ARRAYS)
    n = len(images) if images.ndim else 0
    if (
        [images.shape, labels.shape, font_ids.shape] != [(n, size, size), (n,), (n,)]
        or not points.ndim == fonts.ndim == 1
        or "".join(arrays[name].dtype.kind for name in _ARRAYS) != "uiiUi"
        or not (n and labels.min() >= 0 and labels.max() < len(points))
        or not (font_ids.min() >= 0 and font_ids.max() < len(fonts))
    ):
        warnings.warn(f"{path}: unexpected arrays in cache file, rendering again", stacklevel=3)
        return None
    return _from_arrays(**arrays)


def _from_arrays(
    images: np.ndarray,
    labels: np.ndarray,
    code_points: np.ndarray,
    fonts: np.ndarray,
    font_ids: np.ndarray,
) -> Examples:
    return Examples(
        name="glyphs",
        shape=(*images.shape[1:], 1),
        source=GlyphSource(images, tuple(fonts.tolist()), font_ids),
        rows=np.arange(len(images)),
        labels=labels,
        class_names=tuple(f"U+{point:04X}" for point in code_points.tolist()),
        augment=warping(),
        view=warping(),
    )


def _to_arrays(glyphs: Examples) -> dict[str, Any]:
    """Returns the arrays of the cache file, with only the images of `glyphs`."""
    source = source_of(glyphs)
    code_points = np.array([int(name[2:], 16) for name in glyphs.class_names], np.int32)
    values = (
        source.images[glyphs.rows],
        glyphs.labels,
        code_points,
        np.array(source.fonts),
        source.font_ids[glyphs.rows],
    )
    return dict(zip(_ARRAYS, values, strict=True))


def render(size: int = 32, min_fonts: int = 4) -> Examples:
    """Renders the data set: every visible code point found in at least `min_fonts` typefaces.

    Some code points look alike, as the Latin, Greek and Cyrillic capital A do. An image that
    occurs in several classes is kept only in the class of the lowest code point, and classes left
    with fewer than `min_fonts` images are dropped; so no image has two labels. Within a class,
    typefaces may draw the same image (an upright and a slanted arrow): these stay, as views.

    Args:
        size: width and height of an image, at least 8.
        min_fonts: least number of images of a class.
    """
    check_number("size", size, integer=True, minimum=8)
    check_number("min_fonts", min_fonts, integer=True, minimum=1)
    glyphs = _without_duplicates(_rasterise(size, min_fonts), min_fonts)
    return _from_arrays(**_to_arrays(glyphs))  # without what was dropped


def _rasterise(size: int, min_fonts: int) -> Examples:
    """Draws all glyphs, duplicates included.

    All typefaces share one scale, an em of 27/32 of the image, and one base line, so that small
    stays small and low stays low; a glyph that would leave the image is shifted, and shrunk if it
    is larger than the image without its border of one 32nd. The outlines are filled by Agg,
    unhinted, which gives the same pixels with matplotlib 3.8, 3.9, 3.10 and 3.11.
    """
    import matplotlib
    from matplotlib import ft2font
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.path import Path
    from matplotlib.transforms import IdentityTransform

    if hasattr(ft2font, "LoadFlags"):  # since matplotlib 3.10
        no_hinting = ft2font.LoadFlags.NO_HINTING
    else:
        no_hinting = ft2font.LOAD_NO_HINTING  # type: ignore[attr-defined]
    folder = pathlib.Path(matplotlib.get_data_path(), "fonts", "ttf")
    files = sorted(path for pattern in _TYPEFACES for path in folder.glob(pattern))
    if not files:
        raise FileNotFoundError(f"{folder}: matplotlib's typefaces {_TYPEFACES} are not there")
    faces = [ft2font.FT2Font(str(path)) for path in files]
    charmaps = [face.get_charmap() for face in faces]
    found = collections.Counter(point for charmap in charmaps for point in charmap)
    wanted = sorted(
        point
        for point, fonts in found.items()
        if fonts >= min_fonts and unicodedata.category(chr(point)) not in _INVISIBLE
    )

    # Drawn into sheets of side x side cells: a renderer per glyph would be slow.
    side = max(1, 2048 // size)
    renderer = RendererAgg(side * size, side * size, 72)
    pen = renderer.new_gc()
    pen.set_linewidth(0)
    pen.set_snap(False)
    identity = IdentityTransform()
    border, em, base_line = size / 32, size * 27 / 32, size * 8 / 32
    sheets: list[np.ndarray] = []
    origins: list[tuple[int, int]] = []  # (code point, typeface) of each image

    def cut() -> None:
        count = len(origins) - sum(map(len, sheets))
        ink = np.asarray(renderer.buffer_rgba())[..., 3].reshape(side, size, side, size)
        sheets.append(ink.swapaxes(1, 2).reshape(-1, size, size)[:count].copy())
        renderer.clear()

    progress = progress_bar(faces, desc="rendering glyphs", unit="font", leave=False, disable=None)
    for font, face in enumerate(progress):
        face.set_size(face.units_per_EM, 72)  # one font unit per pixel
        for point in wanted:
            if not charmaps[font].get(point):  # absent, or drawn as a missing glyph
                continue
            face.load_char(point, flags=no_hinting)
            vertices, codes = face.get_path()
            if not len(vertices):
                continue
            vertices = vertices * (em / face.units_per_EM)
            low, high = vertices.min(0), vertices.max(0)
            shrink = min(1.0, (size - 2 * border) / max(high - low))
            vertices, low, high = vertices * shrink, low * shrink, high * shrink
            row, column = divmod(len(origins) % side**2, side)
            x = (size - low[0] - high[0]) / 2
            y = min(max(base_line, border - low[1]), size - border - high[1])
            # Agg's y points up, the rows of the sheet down.
            corner = np.array([column * size, (side - 1 - row) * size])
            path = Path(vertices + corner + (x, y), codes)
            path.should_simplify = False
            renderer.draw_path(pen, path, identity, (0.0, 0.0, 0.0, 1.0))
            origins.append((point, font))
            if len(origins) % side**2 == 0:
                cut()
    if len(origins) % side**2:
        cut()

    images, (points, font_ids) = np.concatenate(sheets), np.array(origins, np.int32).T
    inked = images.any(axis=(1, 2))
    order = np.flatnonzero(inked)[np.lexsort((font_ids[inked], points[inked]))]
    code_points, labels = np.unique(points[order], return_inverse=True)
    return _from_arrays(
        images=images[order],
        labels=labels.astype(np.int32),
        code_points=code_points,
        fonts=np.array([path.stem for path in files]),
        font_ids=font_ids[order],
    )


def _without_duplicates(glyphs: Examples, min_fonts: int) -> Examples:
    """Drops images that a lower label has too, then classes with fewer than `min_fonts` images."""
    first_label: dict[bytes, int] = {}
    keep = np.array(
        [
            first_label.setdefault(image.tobytes(), label) == label
            for image, label in zip(
                source_of(glyphs).images[glyphs.rows], glyphs.labels.tolist(), strict=True
            )
        ]
    )
    unique = glyphs.take(keep)
    counts = np.bincount(unique.labels, minlength=glyphs.num_classes)
    return unique.select(np.flatnonzero(counts >= min_fonts))


def split(
    glyphs: Examples,
    seed: int = 0,
    validation: int = 200,
    test: int = 1134,
    distractors: int = 400,
) -> dict[str, Examples]:
    """Splits by class: no code point is in two parts, and labels start at 0 in each.

    Args:
        glyphs: what to split.
        seed: decides which classes go where.
        validation: number of validation classes.
        test: number of test classes.
        distractors: number of classes for the distractors; training gets all that are left.

    Returns:
        The parts "train", "validation", "test" and "distractors".
    """
    check_number("seed", seed, integer=True, minimum=0)
    sizes = {"validation": validation, "test": test, "distractors": distractors}
    for name, value in sizes.items():
        check_number(name, value, integer=True, minimum=0)
    train = glyphs.num_classes - sum(sizes.values())
    if train < 1:
        raise ValueError(f"{sizes}: expected fewer classes in all than {glyphs.num_classes}")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(glyphs.num_classes)
    groups = np.split(order, np.cumsum([train, validation, test]))
    return {
        name: glyphs.select(classes)
        for name, classes in zip(("train", *sizes), groups, strict=True)
    }


def contact_sheet(
    glyphs: Examples,
    path: str | os.PathLike[str],
    rows: int = 10,
    views: int = 8,
    seed: int = 0,
    warp: Warp | None = None,
) -> None:
    """Writes a figure (PNG) of some classes: as the typefaces draw them, and warped.

    Args:
        glyphs: the images to draw from.
        path: the file to write.
        rows: number of classes, drawn by `seed` among those found in most typefaces.
        views: warped images per class.
        seed: of the choice and the warps.
        warp: how far images are warped, `Warp()` if None.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image  # comes with matplotlib

    check_number("rows", rows, integer=True, minimum=1, maximum=glyphs.num_classes)
    check_number("views", views, integer=True, minimum=1)
    check_number("seed", seed, integer=True, minimum=0)
    random = np.random.Generator(np.random.PCG64(seed))
    source = source_of(glyphs)
    images, font_ids = source.images[glyphs.rows], source.font_ids[glyphs.rows]
    fonts = np.sort(np.argsort(-np.bincount(font_ids), kind="stable")[:16])
    shown = np.isin(font_ids, fonts)
    found = np.bincount(glyphs.labels[shown], minlength=glyphs.num_classes)
    chosen = np.sort(np.lexsort((random.random(glyphs.num_classes), -found))[:rows])

    size = images.shape[1]
    clean = np.zeros((rows, len(fonts), size, size), np.float32)
    sources = np.empty((rows, views), np.int64)
    for row, label in enumerate(chosen):
        members = np.flatnonzero(glyphs.labels == label)
        sources[row] = random.choice(members, views)
        members = members[shown[members]]
        clean[row, np.searchsorted(fonts, font_ids[members])] = images[members] / 255
    warped = warping(warp)(
        tf.constant(images[sources.ravel(), ..., None]), tf.constant([seed, 0], tf.int64)
    )
    panels = [
        (clean, "a class per row, a typeface per column"),
        (np.reshape(warped, (rows, views, size, size)), "as the encoder sees them"),
    ]

    figure = Figure(figsize=(0.4 * (len(fonts) + views) + 1.3, 0.4 * rows + 1), dpi=100)
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2, width_ratios=[len(fonts), views], squeeze=True)
    for axis, (cells, title) in zip(axes, panels, strict=True):
        columns = cells.shape[1]
        sheet = cells.swapaxes(1, 2).reshape(rows * size, columns * size)
        axis.imshow(sheet, cmap="Greys", vmin=0, vmax=1, extent=(0, columns, rows, 0))
        axis.set_title(title, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.hlines(range(1, rows), 0, columns, color="0.85", linewidth=0.5)
        axis.spines[:].set_color("0.6")
    names = [glyphs.class_names[label] for label in chosen]
    axes[0].set_yticks(np.arange(rows) + 0.5, names, fontsize=8, family="monospace")
    axes[0].tick_params(length=0)
    figure.suptitle(f"Glyphs: {glyphs.num_classes:,} classes, {len(glyphs):,} images", fontsize=12)
    figure.tight_layout()
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("L")
    with atomic_path(path) as temporary:
        picture.save(temporary, format="png", optimize=True)


def main() -> None:
    """Renders the data set and prints its sizes and its speed."""
    start = time.process_time()
    drawn = _rasterise(size=32, min_fonts=4)
    glyphs = _without_duplicates(drawn, min_fonts=4)
    seconds = time.process_time() - start
    fonts = len(source_of(glyphs).fonts)
    print(f"rendered from {fonts} typefaces in {seconds:.1f} seconds of one core")
    print(f"all: {drawn.num_classes:,} classes, {len(drawn):,} images")
    print(
        f"duplicates dropped: {len(drawn) - len(_without_duplicates(drawn, min_fonts=1)):,} images"
    )
    print(f"classes of at least 4 left: {glyphs.num_classes:,} classes, {len(glyphs):,} images")
    parts = split(glyphs)
    for name, part in parts.items():
        print(f"{name}: {part.num_classes:,} classes, {len(part):,} images")
    batch_size, steps = 256, 100
    batches = iter(parts["train"].training_batches(batch_size, seed=0))
    for _ in range(10):  # let the pipeline fill and tune itself
        next(batches)
    start = time.perf_counter()
    for _ in range(steps):
        next(batches)
    rate = steps * batch_size / (time.perf_counter() - start)
    print(f"training batches of {batch_size}: {rate:,.0f} images per second")


if __name__ == "__main__":
    main()
