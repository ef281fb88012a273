"""From the data flags to a data set."""

from typing import TYPE_CHECKING

from sparse_embed.flags import app
from sparse_embed.flags.data import DataConfig

if TYPE_CHECKING:
    from sparse_embed.datasets.catalogue import DataSet


def load_data(config: DataConfig, views: int = 1) -> "DataSet":
    """Returns the data set that the flags name; UsageError if it is not there or not readable."""
    from sparse_embed.datasets import catalogue

    try:
        return catalogue.load(
            config.dataset,
            config.data_dir,
            (config.image_size, config.image_size),
            config.validation,
            config.test,
            config.split_seed,
            views=views,
            largest_shift=config.largest_shift,
        )
    except (OSError, ValueError) as error:
        raise app.UsageError(
            f"--dataset={config.dataset} --data_dir={config.data_dir}: {error}"
        ) from error
