"""Which data set, and where it is."""

import dataclasses

from absl import flags

DATASETS = ["glyphs"]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The data set."""

    dataset: str = "glyphs"
    data_dir: str | None = None


flags.DEFINE_enum("dataset", DataConfig.dataset, DATASETS, "Data set.")
flags.DEFINE_string(
    "data_dir",
    DataConfig.data_dir,
    "Folder of the data set; for glyphs, where the rendered images are kept between runs "
    "(default: the user's cache folder).",
)
