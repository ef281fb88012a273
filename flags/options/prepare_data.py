"""Options of `prepare_data`, by what it writes."""

import dataclasses

from sparse_embed.common.options import option
from sparse_embed.datasets.catalogue import ImageFolderOptions
from sparse_embed.flags.config import Kinds, option_fields
from sparse_embed.flags.options import fields

_OF_FOLDERS = {field.name: field.metadata["help"] for field in option_fields(ImageFolderOptions)}


@dataclasses.dataclass(frozen=True)
class Shards:
    """Images on disk, copied into shards of TFRecords."""

    dataset: str = option("recordio", "What the images are.", choices=("recordio", "image_folder"))
    data_dir: str | None = fields.data_dir()
    shards_dir: str | None = option(None, "Where the shards go.")
    num_shards: int = option(64, "Number of files.", lower=1)
    image_size: int = option(112, _OF_FOLDERS["image_size"], lower=8)
    on_error: str = option("raise", _OF_FOLDERS["on_error"], choices=("raise", "skip"))
    scan_labels: bool = option(
        False, "Take labels from every record instead of from the identities' ranges."
    )


@dataclasses.dataclass(frozen=True)
class EvaluationSets:
    """The images that every encoder is evaluated on, drawn once."""

    images_dir: str | None = option(None, "Folder that the images go to.")
    drawn_from: str = fields.drawn_from()
    distractors: int = fields.distractors()
    probe_classes: int = fields.probe_classes()
    pair_count: int = fields.pair_count()


OPTIONS = Kinds(
    "to",
    "What to write: shards of images, or evaluation sets of words or glyphs.",
    {"shards": Shards, "evaluation_sets": EvaluationSets},
    {"images_dir": "evaluation_sets"},
)
