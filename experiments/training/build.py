"""Builds from a config: the encoder, the model that trains it, its loss and its optimizer."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.training import devices
from sparse_embed.experiments.training.warm_start import freeze_backbone
from sparse_embed.flags.train_config import (
    ObjectiveConfig,
    OptimizationConfig,
    TrainConfig,
)

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from sparse_embed.losses import TargetFlops

MOMENTUM = 0.9  # of SGD, as in the paper


def build(
    config: TrainConfig,
    shape: tuple[int, ...],
    num_classes: int,
    strategy: "tf.distribute.Strategy",
) -> tuple["keras.Model", "keras.Model"]:
    """Returns the encoder for examples of that shape, and the compiled model that trains it."""
    from sparse_embed import losses, models

    given = config.model
    if len(models.ARCHITECTURES[given.model].minimum) != len(shape):
        raise UsageError(
            f"--model={given.model} with --dataset={config.data.dataset}, whose examples have "
            f"shape {shape}: expected {'linear' if len(shape) == 1 else 'a network for images'}"
        )
    with strategy.scope():
        try:
            encoder = models.build_encoder(
                given.model,
                given.embedding_dim,
                given.activation,
                input_shape=shape,
                width=given.width,
                initial_probability=given.initial_probability,
            )
        except ValueError as error:
            raise UsageError(f"--model={given.model}: {error}") from error
        if not given.train_backbone:
            freeze_backbone(encoder)
        model = training_model(encoder, num_classes, config, devices.model_class(strategy))
        # XLA cannot compile the sums over replicas that batch norm and penalty take.
        compilable = (
            strategy.num_replicas_in_sync == 1 and losses.LOSSES[config.objective.loss].compilable
        )
        xla = "auto" if config.optimization.xla is None else config.optimization.xla
        model.compile(
            optimizer(config.optimization, config.ends),
            metric_loss(config.objective),
            jit_compile=xla if compilable else False,
        )
    return encoder, model


def training_model(
    encoder: "keras.Model", num_classes: int, config: TrainConfig, model_class: type
) -> "keras.Model":
    """Returns encoder -> cut -> monitor -> regularization -> input of the metric loss, for `fit`.

    The penalty acts on the unit-norm embeddings, the f_theta(x) of the paper. With --train_keep
    they are cut before, and the monitor reports what is penalised; the encoder itself cuts nothing.
    """
    import keras

    from sparse_embed import losses, models

    objective = config.objective
    examples = keras.Input(encoder.input_shape[1:], name="examples")
    embeddings = encoder(examples)
    if config.model.train_keep is not None:
        embeddings = models.KeepLargest(config.model.train_keep, objective.warmup_steps)(embeddings)
    embeddings = losses.SparsityMonitor()(embeddings)
    if objective.regularizer != "none":
        layer = losses.REGULARIZERS[objective.regularizer].layer
        given = same_named(layer, objective)
        embeddings = layer(schedule(config), scope=objective.regularizer_scope, **given)(embeddings)
    if losses.LOSSES[objective.loss].takes == "cosines":
        embeddings = models.ArcFaceHead(num_classes)(embeddings)
    return model_class(examples, embeddings)


def schedule(config: TrainConfig) -> "Callable[[Any], Any] | TargetFlops":
    """Returns the schedule of lambda: towards the wanted FLOPs, or along the given weights."""
    from sparse_embed import losses

    objective = config.objective
    if objective.target_flops is not None:
        return losses.TargetFlops(
            objective.target_flops, objective.regularizer_weight, objective.warmup_steps
        )
    return losses.WeightPath(objective.weights, config.ends[:-1], objective.warmup_steps)


def same_named(kind: type, objective: ObjectiveConfig) -> dict[str, Any]:
    """Returns the flags that a class has arguments of the same names for."""
    names = inspect.signature(kind).parameters
    return {name: getattr(objective, name) for name in names if hasattr(objective, name)}


def metric_loss(objective: ObjectiveConfig) -> "keras.losses.Loss":
    """Returns the metric loss; arguments named like flags get the flags' values."""
    from sparse_embed import losses

    kind = losses.LOSSES[objective.loss].loss
    return kind(**same_named(kind, objective))


def optimizer(optimization: OptimizationConfig, ends: list[int]) -> "keras.optimizers.Optimizer":
    """Returns the optimizer with its learning-rate schedule over stages with these ends."""
    import keras

    rate: Any = optimization.learning_rate
    if optimization.learning_rate_schedule == "cosine":
        from sparse_embed.experiments.training.restarted_cosine import RestartedCosine

        rate = RestartedCosine(rate, ends)
    elif optimization.learning_rate_schedule == "step":
        rate = keras.optimizers.schedules.PiecewiseConstantDecay(
            [optimization.decay_steps], [rate, rate / 10]
        )
    decay = optimization.weight_decay or None
    if optimization.optimizer == "sgd":
        return keras.optimizers.SGD(rate, momentum=MOMENTUM, weight_decay=decay)
    return keras.optimizers.Adam(rate, weight_decay=decay)
