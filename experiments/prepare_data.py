r"""Copies images on disk into shards of TFRecords, which slow disks read several times faster.

    python -m sparse_embed.experiments.prepare_data --source=faces_emore --shards_dir=shards
    python -m sparse_embed.experiments.prepare_data --source=photos --layout=image_folder \
        --resize=112,112 --shards_dir=shards --on_error=skip

Every image is checked. A shard appears under its name only when it is whole: after an interruption
the same command continues where it stopped.
"""

import pathlib
from typing import TYPE_CHECKING

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app

if TYPE_CHECKING:
    from sparse_embed.datasets.examples import Examples

LAYOUTS = ["recordio", "image_folder"]

_SOURCE = flags.DEFINE_string("source", None, "Folder of the images.")
_LAYOUT = flags.DEFINE_enum(
    "layout",
    "recordio",
    LAYOUTS,
    "recordio: InsightFace's train.rec, train.idx and property; image_folder: a folder per class.",
)
_SHARDS_DIR = flags.DEFINE_string("shards_dir", None, "Where the shards go.")
_NUM_SHARDS = flags.DEFINE_integer("num_shards", 64, "Number of files.", lower_bound=1)
_RESIZE = flags.DEFINE_list(
    "resize", ["112", "112"], "Height and width of image_folder's images after scaling."
)
_ON_ERROR = flags.DEFINE_enum(
    "on_error", "raise", ["raise", "skip"], "What to do at a broken image; both name it."
)
_SCAN_LABELS = flags.DEFINE_bool(
    "scan_labels", False, "Take labels from every record instead of from the identities' ranges."
)


def load(source: pathlib.Path) -> "Examples":
    """Returns the images that the flags ask for."""
    from sparse_embed.datasets import image_folder, recordio

    if _LAYOUT.value == "recordio":
        return recordio.load(source, on_error=_ON_ERROR.value, scan_labels=_SCAN_LABELS.value)
    try:
        height, width = map(int, _RESIZE.value)
    except ValueError as error:
        raise ValueError(f"--resize={','.join(_RESIZE.value)}: expected H,W") from error
    return image_folder.load(source, (height, width, 3), _ON_ERROR.value)


def main() -> None:
    """Reads the flags and writes the shards."""
    source = app.existing_path(
        "source", _SOURCE.value, "train.rec" if _LAYOUT.value == "recordio" else ""
    )
    shards_dir = app.writable_folder("shards_dir", _SHARDS_DIR.value)
    # Imported only now, so that a mistake in a path is reported at once.
    from sparse_embed.datasets import tfrecords

    try:
        examples = load(source)
        shards = tfrecords.write_shards(examples, shards_dir, _NUM_SHARDS.value)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    skipped = len(examples) - len(shards)
    print(
        f"{shards_dir}: {len(shards):,} images of {shards.num_classes:,} classes in "
        f"{shards.num_shards} shards; {skipped:,} broken images skipped"
    )


if __name__ == "__main__":
    app.run(main)
