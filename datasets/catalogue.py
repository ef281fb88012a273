"""Every data set by name: how to load it, and its own options.

    parts = load("image_folder", "photos", test=100, options=ImageFolderOptions(image_size=64))
    for images, labels in parts["train"].training_batches(batch_size=256, seed=0):
        ...

A data set of your own is one more row:

    DATASETS["toy"] = DataSet(load_toy, ToyOptions)

TensorFlow is imported when a data set is loaded, not before.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparse_embed.common.checks import check_choice
from sparse_embed.common.options import option

if TYPE_CHECKING:
    from sparse_embed.datasets.examples import Examples, Part
    from sparse_embed.datasets.tfrecords import Shards

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The options of a data set that has none."""


# The help of options that several data sets have.
_MIRROR = (
    "Whether training mirrors images left to right at random, in image_folder, recordio, tfrecords "
    "and cifar100. --nomirror for letters, and whatever else has a left and a right."
)
_ON_ERROR = (
    "What happens at a broken image of image_folder or recordio: raise ends the script, before the "
    "first step if the image's header shows it; skip goes on without it. Both name it."
)


@dataclasses.dataclass(frozen=True)
class Cifar100Options:
    """The options of CIFAR-100."""

    largest_shift: int = option(
        4, "Largest shift of cifar100's training images, in pixels.", lower=0
    )
    mirror: bool = option(True, _MIRROR)


@dataclasses.dataclass(frozen=True)
class RecordOptions:
    """The options of record files."""

    mirror: bool = option(True, _MIRROR)
    on_error: str = option("raise", _ON_ERROR, choices=["raise", "skip"])


@dataclasses.dataclass(frozen=True)
class ShardOptions:
    """The options of shards."""

    mirror: bool = option(True, _MIRROR)


@dataclasses.dataclass(frozen=True)
class ImageFolderOptions:
    """The options of image folders."""

    image_size: int = option(
        112, "Height and width of image_folder's images after scaling.", lower=8
    )
    mirror: bool = option(True, _MIRROR)
    on_error: str = option("raise", _ON_ERROR, choices=["raise", "skip"])


@dataclasses.dataclass(frozen=True)
class WordsOptions:
    """The options of words."""

    word_classes: int = option(20_000, "Number of words to train on.", lower=1)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A row of the table.

    Attributes:
        load: (data_dir, options, validation, test, seed) -> the parts by name: "train" and, if
            there are any, "validation", "test" and more. `validation` and `test` are numbers of
            classes, or the data set's own equivalent; `seed` decides which go where.
        options: frozen dataclass of `common.options.option` fields; `load` gets an instance.
        needs_data_dir: whether loading needs a `data_dir`.
        help: its part of the flag's help.
    """

    load: Callable[..., "Mapping[str, Part]"]
    options: type = NoOptions
    needs_data_dir: bool = True
    help: str = ""


def load(
    name: str,
    data_dir: Path | None = None,
    validation: int = 0,
    test: int = 0,
    seed: int = 0,
    options: Any = None,
) -> "dict[str, Part]":
    """Loads a data set and splits it.

    All but CIFAR-100 and folders of dense embeddings, which have parts of their own, are split by
    class, so that testing is on classes never seen in training.

    Args:
        name: a key of `DATASETS`.
        data_dir: where the files are: a folder; for CIFAR-100, the archive or folder; for dense
            embeddings, a file, or a folder of a file per part. Glyphs and words need none, and keep
            their cache there.
        validation: number of validation classes; for CIFAR-100, validation images per class.
        test: number of test classes; CIFAR-100 ignores it. If both are 0, glyphs have 200 and
            1,134, words 500 and 1,000.
        seed: decides which classes (or images) go where.
        options: of the data set's own type, `DATASETS[name].options`; its defaults if None.

    Returns:
        The parts that are not empty: "train" and perhaps "validation", "test" and, for glyphs and
        words, "distractors".
    """
    check_choice("name", name, DATASETS)
    row = DATASETS[name]
    if row.needs_data_dir and data_dir is None:
        raise ValueError(f"data_dir=None: expected the path of the files of {name}")
    options = row.options() if options is None else options
    if not isinstance(options, row.options):
        raise ValueError(
            f"options={options!r}: expected {row.options.__name__}, the type for {name}"
        )
    found = row.load(data_dir, options, validation, test, seed)
    parts = {key: part for key, part in found.items() if len(part)}
    if "train" not in parts:
        raise ValueError(f"{name}: expected examples to train on, got none")
    return parts


def _glyphs(
    data_dir: Path | None, options: NoOptions, validation: int, test: int, seed: int
) -> "dict[str, Examples]":
    from sparse_embed.datasets import glyphs

    sizes = {"validation": validation, "test": test} if validation or test else {}
    return glyphs.split(glyphs.load(data_dir), seed, **sizes)


def _words(
    data_dir: Path | None, options: WordsOptions, validation: int, test: int, seed: int
) -> "dict[str, Examples]":
    from sparse_embed.datasets import glyphs, words

    sizes = {"validation": validation, "test": test} if validation or test else {}
    return words.split(glyphs.load(data_dir), seed, options.word_classes, **sizes)


def _cifar100(
    data_dir: Path, options: Cifar100Options, validation: int, test: int, seed: int
) -> "dict[str, Examples]":
    from sparse_embed.datasets import cifar100

    parts = cifar100.load(data_dir, validation, seed, options.largest_shift, options.mirror)
    return parts._asdict()


def _split_by_class(
    load_all: "Callable[[Path, Any], Examples | Shards]",
) -> "Callable[..., dict[str, Part]]":
    """Returns a `load` that calls `load_all(data_dir, options)` and splits the result by class."""

    def load_parts(
        data_dir: Path, options: Any, validation: int, test: int, seed: int
    ) -> "dict[str, Part]":
        from sparse_embed.datasets.examples import split_by_class

        return split_by_class(load_all(data_dir, options), validation, test, seed)._asdict()

    return load_parts


def _recordio(data_dir: Path, options: RecordOptions) -> "Examples":
    from sparse_embed.datasets import recordio
    from sparse_embed.datasets.header_check import without_broken

    return without_broken(recordio.load(data_dir, on_error=options.on_error, mirror=options.mirror))


def _tfrecords(data_dir: Path, options: ShardOptions) -> "Shards":
    from sparse_embed.datasets import tfrecords

    return dataclasses.replace(tfrecords.open_shards(data_dir), mirror=options.mirror)


def _image_folder(data_dir: Path, options: ImageFolderOptions) -> "Examples":
    from sparse_embed.datasets import image_folder
    from sparse_embed.datasets.header_check import without_broken

    shape = (options.image_size, options.image_size, 3)
    return without_broken(image_folder.load(data_dir, shape, options.on_error, options.mirror))


def _dense_embeddings(
    data_dir: Path, options: NoOptions, validation: int, test: int, seed: int
) -> "Mapping[str, Part]":
    from sparse_embed.datasets import dense_embeddings

    if os.path.isdir(data_dir):
        return dense_embeddings.load_parts(data_dir)
    split = _split_by_class(lambda path, _: dense_embeddings.load(path))
    return split(data_dir, options, validation, test, seed)


DATASETS: dict[str, DataSet] = {
    "glyphs": DataSet(_glyphs, needs_data_dir=False, help="needs no files"),
    "words": DataSet(_words, WordsOptions, needs_data_dir=False, help="needs no files"),
    "cifar100": DataSet(_cifar100, Cifar100Options, help="the official archive or folder"),
    "recordio": DataSet(
        _split_by_class(_recordio), RecordOptions, help="folder of InsightFace's train.rec"
    ),
    "tfrecords": DataSet(
        _split_by_class(_tfrecords), ShardOptions, help="folder of shards made by prepare_data"
    ),
    "image_folder": DataSet(
        _split_by_class(_image_folder), ImageFolderOptions, help="a folder per class"
    ),
    "dense_embeddings": DataSet(
        _dense_embeddings,
        help="labelled vectors (.npz, or as embed writes them) to train a sparse head on, or a "
        "folder of train.npy and perhaps validation.npy and test.npy",
    ),
}
