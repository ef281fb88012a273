"""Sets up TensorFlow by the distribution flags; once, before anything else uses it."""

import json
import os
from typing import TYPE_CHECKING

from sparse_embed.common.failures import UsageError
from sparse_embed.common.reading import parse_json
from sparse_embed.flags.train_config import DistributionConfig

if TYPE_CHECKING:
    import tensorflow as tf


def set_up(config: DistributionConfig, seed: int) -> "tf.distribute.Strategy":
    """Seeds the random generators, sets precision and determinism, and returns the strategy.

    Raises:
        UsageError: the strategy does not fit the machine or the environment.
    """
    import keras
    import tensorflow as tf

    if config.logical_cpus > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * config.logical_cpus
        tf.config.set_logical_device_configuration(cpu, parts)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = _strategy(config.strategy)  # before anything else starts the devices
    keras.config.set_dtype_policy(config.precision)
    keras.utils.set_random_seed(seed)
    return strategy


def _strategy(name: str) -> "tf.distribute.Strategy":
    import tensorflow as tf

    if name == "multi_worker":
        return _multi_worker()
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        devices = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
        # On CPUs the default collectives can mis-pair when several programs run in one process.
        reduction = None if gpus else tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
    return tf.distribute.get_strategy()


def _multi_worker() -> "tf.distribute.Strategy":
    import tensorflow as tf

    value = os.environ.get("TF_CONFIG", "")
    try:
        description = parse_json(value)
        workers = description["cluster"]["worker"]
        workers[description["task"]["index"]]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(
            f"--strategy=multi_worker with TF_CONFIG={value!r}: expected JSON with the addresses "
            'of all workers in ["cluster"]["worker"] and this one\'s number in ["task"]["index"]'
        ) from error
    return tf.distribute.MultiWorkerMirroredStrategy()


def model_class(strategy: "tf.distribute.Strategy") -> type:
    """Returns the class of Keras models that can be trained under the strategy.

    `keras.Model` fails under several workers (Keras 3.10 to 3.15) in two places, which are fixed
    here: it averages the first batch over the workers to see its shape, though this worker's part
    shows the shape too; and it averages a step's metrics along an axis that scalars do not have.
    """
    import keras
    import tensorflow as tf

    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return keras.Model

    class MultiWorkerModel(keras.Model):
        def _maybe_symbolic_build(self, iterator=None, data_batch=None):
            if iterator is not None:
                _, _, batches = next(iter(iterator))
                data_batch = keras.tree.map_structure(
                    lambda value: strategy.experimental_local_results(value)[0], next(batches)
                )
            super()._maybe_symbolic_build(data_batch=data_batch)

        def train_step(self, data):
            metrics = super().train_step(data)
            return keras.tree.map_structure(lambda value: tf.expand_dims(value, 0), metrics)

    return MultiWorkerModel


def is_chief() -> bool:
    """Whether this process writes the results, as the first worker or the only process does."""
    value = os.environ.get("TF_CONFIG")
    return not value or json.loads(value).get("task", {}).get("index", 0) == 0
