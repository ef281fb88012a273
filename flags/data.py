"""Which data set, where it is, and which classes are kept for evaluation."""

import dataclasses

from absl import flags

DATASETS = ["glyphs", "cifar100", "recordio", "tfrecords", "image_folder", "dense_embeddings"]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The data set and its split."""

    dataset: str = "glyphs"
    data_dir: str | None = None
    image_size: int = 112
    validation: int = 0
    test: int = 0
    split_seed: int = 0
    largest_shift: int = 4


flags.DEFINE_enum(
    "dataset",
    DataConfig.dataset,
    DATASETS,
    "glyphs needs no files; cifar100: the official archive or folder; recordio: InsightFace's "
    "train.rec; tfrecords: shards made by prepare_data; image_folder: a folder per class; "
    "dense_embeddings: vectors of another encoder with labels, to learn a sparse head on.",
)
flags.DEFINE_string(
    "data_dir",
    DataConfig.data_dir,
    "Folder or file of the data set; for glyphs, where the rendered images are kept between runs "
    "(default: the user's cache folder).",
)
flags.DEFINE_integer(
    "image_size",
    DataConfig.image_size,
    "Height and width that the images of image_folder are scaled to.",
    lower_bound=8,
)
flags.DEFINE_integer(
    "validation",
    DataConfig.validation,
    "Classes kept from training for evaluation during it (of cifar100, images per class). "
    "With 0 here and in --test, glyphs keep 200 and 1,134.",
    lower_bound=0,
)
flags.DEFINE_integer(
    "test",
    DataConfig.test,
    "Classes kept from training for the final evaluation (cifar100 has test images of its own).",
    lower_bound=0,
)
flags.DEFINE_integer(
    "largest_shift",
    DataConfig.largest_shift,
    "Pixels by which training images of cifar100 are shifted at most.",
    lower_bound=0,
)
flags.DEFINE_integer("split_seed", DataConfig.split_seed, "Which classes go where.", lower_bound=0)
