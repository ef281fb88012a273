"""Refuses flags that do not fit together, before any work is done."""

import math

from absl import logging

from sparse_embed.common.failures import UsageError
from sparse_embed.datasets.catalogue import DATASETS
from sparse_embed.experiments.core.run import encoder_path
from sparse_embed.flags.config import check_choices
from sparse_embed.flags.train_config import TrainConfig


def check(config: TrainConfig) -> None:
    """Raises UsageError naming the flags, their values and what was expected."""
    data, model, objective = config.data, config.model, config.objective
    optimization, distribution = config.optimization, config.distribution
    check_choices(data)
    try:
        objective.weights  # noqa: B018 - it raises
    except ValueError as error:
        raise UsageError(
            f"--reg_path={objective.reg_path}: expected increasing positive weights, such as "
            "10,20,40"
        ) from error
    dense = model.activation == "none"
    regularized = objective.regularizer != "none"
    is_step = optimization.learning_rate_schedule == "step"
    is_sdh = objective.loss == "sdh"
    refused = [
        (
            DATASETS[data.dataset].needs_data_dir and data.data_dir is None,
            f"--dataset={data.dataset} needs --data_dir",
        ),
        (
            regularized and dense,
            f"--regularizer={objective.regularizer} needs --activation=relu or soft_threshold, "
            "which give exact zeros",
        ),
        (
            dense and model.initial_probability is not None,
            f"--initial_probability={model.initial_probability} needs --activation=relu or "
            "soft_threshold",
        ),
        (
            model.train_keep is not None and (dense or is_sdh),
            f"--train_keep={model.train_keep} needs --activation=relu or soft_threshold and a "
            "--loss other than sdh: nothing else is cut when it is searched",
        ),
        (
            model.train_keep is not None and model.train_keep > model.embedding_dim,
            f"--train_keep={model.train_keep}: expected at most --embedding_dim="
            f"{model.embedding_dim}",
        ),
        (
            objective.loss == "arcface" and objective.margin > math.pi / 2,
            f"--margin={objective.margin}: expected at most pi/2 with --loss=arcface",
        ),
        (
            is_step and not 0 < optimization.decay_steps < optimization.steps,
            f"--decay_steps={optimization.decay_steps}: expected 1 to {optimization.steps - 1}, "
            "within --steps, with --learning_rate_schedule=step",
        ),
        (
            not is_step and optimization.decay_steps > 0,
            f"--decay_steps={optimization.decay_steps} needs --learning_rate_schedule=step",
        ),
        (
            distribution.strategy != "mirrored" and distribution.logical_cpus > 1,
            f"--logical_cpus={distribution.logical_cpus} needs --strategy=mirrored",
        ),
        (
            objective.reg_path is not None and not regularized,
            f"--reg_path={objective.reg_path} needs a --regularizer",
        ),
        (
            objective.target_flops is not None and not regularized,
            f"--target_flops={objective.target_flops} needs a --regularizer",
        ),
        (
            objective.target_flops is not None and objective.reg_path is not None,
            f"--target_flops={objective.target_flops} finds the weight itself: expected no "
            f"--reg_path, got {objective.reg_path}",
        ),
        (
            objective.target_flops is not None and objective.target_flops >= model.embedding_dim,
            f"--target_flops={objective.target_flops}: expected less than --embedding_dim="
            f"{model.embedding_dim}, the cost of dense embeddings",
        ),
        (
            objective.target_flops is not None and objective.regularizer_weight == 0,
            f"--regularizer_weight={objective.regularizer_weight}: expected a positive number, "
            "where --target_flops begins",
        ),
        (
            objective.reg_path is None and optimization.path_steps is not None,
            f"--path_steps={optimization.path_steps} needs --reg_path",
        ),
        (
            not model.warm_start_head and model.warm_start is None,
            "--nowarm_start_head needs --warm_start",
        ),
        (
            not model.train_backbone and model.warm_start is None,
            "--notrain_backbone needs --warm_start: without it, features would be random",
        ),
        (
            is_sdh and (not dense or regularized),
            "--loss=sdh makes codes from dense embeddings: it needs --activation=none and "
            "--regularizer=none",
        ),
        (
            is_sdh and objective.active_bits > model.embedding_dim,
            f"--active_bits={objective.active_bits}: expected at most --embedding_dim="
            f"{model.embedding_dim}",
        ),
        (
            optimization.batch_size % optimization.examples_per_class != 0,
            f"--examples_per_class={optimization.examples_per_class}: expected a divisor of "
            f"--batch_size={optimization.batch_size}",
        ),
        (
            optimization.xla and distribution.strategy in ("mirrored", "multi_worker"),
            f"--xla cannot compile sums over replicas: expected --strategy=one_device or auto, not "
            f"{distribution.strategy}",
        ),
    ]
    for is_refused, message in refused:
        if is_refused:
            raise UsageError(message)
    if model.warm_start is not None:
        encoder_path("warm_start", model.warm_start)
    if regularized and objective.warmup_steps > optimization.steps:
        logging.warning(
            "--warmup_steps=%d is beyond --steps=%d: lambda will not reach its full weight",
            objective.warmup_steps,
            optimization.steps,
        )
    if model.train_keep is not None and objective.warmup_steps > optimization.steps:
        logging.warning(
            "--warmup_steps=%d is beyond --steps=%d: embeddings will not be cut to --train_keep=%d",
            objective.warmup_steps,
            optimization.steps,
            model.train_keep,
        )
    check_choices(model, objective)  # last: it imports Keras
    from sparse_embed.losses import LOSSES

    if optimization.xla and not LOSSES[objective.loss].compilable:
        able = ", ".join(name for name, row in LOSSES.items() if row.compilable)
        raise UsageError(f"--xla cannot compile --loss={objective.loss}: expected one of {able}")


def warn_of_collapse(config: TrainConfig, num_classes: int) -> None:
    """Warns if the embedding can collapse to one dimension per class."""
    if config.objective.regularizer != "none" and config.model.embedding_dim >= num_classes:
        logging.warning(
            "--embedding_dim=%d is not below the %d training classes: a sparse model can collapse "
            "to one dimension per class and fail on unseen classes (section 4 of the paper)",
            config.model.embedding_dim,
            num_classes,
        )
