r"""Copies images on disk into shards of TFRecords, which slow disks read several times faster.

    python -m sparse_embed.experiments.prepare_data --dataset=recordio --data_dir=faces_emore \
        --shards_dir=shards
    python -m sparse_embed.experiments.prepare_data --dataset=image_folder --data_dir=photos \
        --image_size=112 --shards_dir=shards --on_error=skip

Every image is checked. A shard appears under its name only when it is whole: after an interruption
the same command continues where it stopped. `train --dataset=tfrecords` reads the shards, and
splits them by class as it would split the images themselves.
"""

from typing import TYPE_CHECKING

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.datasets.catalogue import ImageFolderOptions
from sparse_embed.flags import app
from sparse_embed.flags.config import define
from sparse_embed.flags.train_config import DataConfig

if TYPE_CHECKING:
    import pathlib

    from sparse_embed.datasets.examples import Examples

DATASETS = ["recordio", "image_folder"]  # those whose images are encoded, on disk

define(DataConfig, only=["dataset", "data_dir"])
define(ImageFolderOptions, only=["image_size", "on_error"])
_SHARDS_DIR = flags.DEFINE_string("shards_dir", None, "Where the shards go.")
_NUM_SHARDS = flags.DEFINE_integer("num_shards", 64, "Number of files.", lower_bound=1)
_SCAN_LABELS = flags.DEFINE_bool(
    "scan_labels", False, "Take labels from every record instead of from the identities' ranges."
)


def load(data_dir: "pathlib.Path") -> "Examples":
    """Returns the images that the flags ask for."""
    from sparse_embed.datasets import image_folder, recordio

    values = flags.FLAGS
    if values.dataset == "recordio":
        return recordio.load(data_dir, on_error=values.on_error, scan_labels=_SCAN_LABELS.value)
    shape = (values.image_size, values.image_size, 3)
    return image_folder.load(data_dir, shape, values.on_error)


def main() -> None:
    """Reads the flags and writes the shards."""
    dataset = flags.FLAGS.dataset
    if dataset not in DATASETS:
        raise UsageError(f"--dataset={dataset}: expected one of {', '.join(DATASETS)}")
    data_dir = app.existing_path(
        "data_dir", flags.FLAGS.data_dir, "train.rec" if dataset == "recordio" else ""
    )
    shards_dir = app.writable_folder("shards_dir", _SHARDS_DIR.value)
    # Imported only now, so that a mistake in a path is reported at once.
    from sparse_embed.datasets import tfrecords

    try:
        examples = load(data_dir)
        shards = tfrecords.write_shards(examples, shards_dir, _NUM_SHARDS.value)
    except ValueError as error:
        raise UsageError(str(error)) from error
    skipped = len(examples) - len(shards)
    print(
        f"{shards_dir}: {len(shards):,} images of {shards.num_classes:,} classes in "
        f"{shards.num_shards} shards; {skipped:,} broken images skipped"
    )


if __name__ == "__main__":
    app.run(main)
