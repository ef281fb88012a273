"""Sets up TensorFlow by the distribution flags; once, before anything else uses it."""

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparse_embed.common.failures import MachineError, UsageError
from sparse_embed.common.reading import parse_json
from sparse_embed.flags.train_config import DistributionConfig, TrainConfig

if TYPE_CHECKING:
    import tensorflow as tf


def set_up(config: DistributionConfig, seed: int) -> "tf.distribute.Strategy":
    """Seeds the random generators, sets precision and determinism, and returns the strategy.

    Raises:
        UsageError: the strategy does not fit the machine or the environment.
    """
    import keras
    import tensorflow as tf

    place(config)
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
        tf.get_logger().setLevel("WARNING")  # it tells of each all-reduce that it prepares
        return tf.distribute.MultiWorkerMirroredStrategy()
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        devices = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
        # On CPUs the default collectives can mis-pair when several programs run in one process.
        reduction = None if gpus else tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
    return tf.distribute.get_strategy()


def place(config: DistributionConfig) -> int:
    """Returns this process's number among the workers; 0 is the chief, or a process alone.

    Only the chief writes.

    Raises:
        UsageError: TF_CONFIG does not say.
    """
    if config.strategy != "multi_worker":
        return 0  # whatever the environment is for
    value = os.environ.get("TF_CONFIG", "")
    try:
        description = parse_json(value)
        cluster, task = description["cluster"], description["task"]
        cluster["worker"][task["index"]]
        known = set(cluster) == {"worker"} and task["type"] == "worker" and task["index"] >= 0
    except (ValueError, KeyError, IndexError, TypeError):
        known = False
    if not known:
        raise UsageError(
            f"--strategy=multi_worker with TF_CONFIG={value!r}: expected JSON with the addresses "
            'of all workers in ["cluster"]["worker"], no other jobs, "worker" in ["task"]["type"] '
            'and this one\'s number in ["task"]["index"]'
        )
    number: int = task["index"]
    return number


def check_agreement(
    strategy: "tf.distribute.Strategy", config: TrainConfig, summary_every: int, start: int
) -> None:
    """Refuses workers with other flags, or that would begin at another step, than the others.

    They would learn something else, or wait for each other for ever.

    Args:
        strategy: what joins the workers.
        config: the flags of this worker.
        summary_every: steps until this worker adds up the metrics, which all do together.
        start: number of steps in the checkpoint that this worker sees.
    """
    import tensorflow as tf

    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return
    flags = zlib.crc32(json.dumps([config.identity, summary_every], sort_keys=True).encode())

    def gather() -> tf.Tensor:
        mine = tf.constant([[start, flags]], tf.int64)
        return tf.distribute.get_replica_context().all_gather(mine, axis=0)

    gathered = tf.function(lambda: strategy.run(gather))()
    starts, hashes = strategy.experimental_local_results(gathered)[0].numpy().T
    if len(set(hashes)) > 1:
        raise UsageError("the workers were given different flags: expected the same for all")
    if len(set(starts)) > 1:
        raise UsageError(
            f"the workers find checkpoints of steps {', '.join(map(str, starts))}: expected a "
            "--model_dir that is the same folder for all, on a disk that they share"
        )


@contextlib.contextmanager
def losing_workers(config: DistributionConfig) -> Iterator[None]:
    """Turns what TensorFlow makes of the end of another worker into a MachineError.

    TensorFlow sees a connection that breaks at once, and silence after 10 seconds.
    """
    if config.strategy != "multi_worker":
        yield
        return
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        broken = tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.CancelledError
        if not isinstance(error, broken | tf.errors.DeadlineExceededError):
            raise
        raise MachineError(
            "lost another worker, which says itself why if it can. What was saved is kept; start "
            "all workers again with the same flags to go on from the last checkpoint"
        ) from error


def model_class(strategy: "tf.distribute.Strategy") -> type:
    """Returns the class of Keras models that can be trained under the strategy.

    `keras.Model` fails under several workers (Keras 3.10 to 3.15) in two places, which are fixed
    here: it averages the first batch over the workers to see its shape, though this worker's part
    shows the shape too; and it averages a step's metrics along an axis that scalars do not have.
    """
    import keras
    import tensorflow as tf

    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        plain: type = keras.Model
        return plain

    class MultiWorkerModel(keras.Model):
        def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
            if iterator is not None:
                _, _, batches = next(iter(iterator))
                data_batch = keras.tree.map_structure(
                    lambda value: strategy.experimental_local_results(value)[0], next(batches)
                )
            super()._maybe_symbolic_build(data_batch=data_batch)

        def train_step(self, data: Any) -> Any:
            metrics = super().train_step(data)
            return keras.tree.map_structure(lambda value: tf.expand_dims(value, 0), metrics)

    return MultiWorkerModel
