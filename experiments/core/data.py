"""Loads the data set of a config, and reads from it."""

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparse_embed.common.failures import DataError, UsageError
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


@contextlib.contextmanager
def reading_part(part: "Part | None" = None) -> Iterator[None]:
    """Turns what TensorFlow makes of broken data inside a pipeline back into a DataError.

    Args:
        part: what is read; its `damage` explains the loss of data.
    """
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        # An error of Python comes out as text: "...: DataError: photos/1.jpg: ...\nTraceback ..."
        raised = re.search(r"\bDataError: (.*)", error.message)
        reason = raised[1] if raised else None
        of_data = isinstance(error, tf.errors.DataLossError | tf.errors.InvalidArgumentError)
        if reason is None and of_data and part is not None:
            reason = part.damage()
        if reason is None:
            raise
        raise DataError(reason) from error
