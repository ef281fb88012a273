"""Loads the data set of a config."""

from typing import TYPE_CHECKING

from sparse_embed.common.failures import UsageError
from sparse_embed.flags.train_config import DataConfig

if TYPE_CHECKING:
    from sparse_embed.datasets.examples import Part


def load_data(config: DataConfig) -> dict[str, "Part"]:
    """Returns the parts of the data set; UsageError if it is absent or not readable."""
    from sparse_embed.datasets import catalogue

    try:
        return catalogue.load(
            config.dataset,
            config.data_dir,
            config.validation,
            config.test,
            config.split_seed,
            config.options,
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--dataset={config.dataset} --data_dir={config.data_dir}: {error}"
        ) from error
