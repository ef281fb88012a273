r"""Trains an encoder: metric loss plus lambda(t) x sparsity penalty (section 4 of the paper).

    python -m sparse_embed.experiments.train --model_dir=runs/sparse --preset=glyphs_flops
    python -m sparse_embed.experiments.train --model_dir=runs/faces --data_dir=faces_emore \
        --preset=mobilefacenet_flops_300

Leaves in --model_dir the encoder (`encoder.keras`, which gives unit-norm embeddings), `train.json`
(every flag, the curves, the time it took, versions and hardware), checkpoints and TensorBoard
events. A run that was killed goes on from its last checkpoint when it is started again with the
same flags. Exit codes: 2 for a mistake in the flags, 3 for a run that a guard has stopped.
"""

import dataclasses
import functools
import json
import math
import pathlib
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from sparse_embed.common.files import atomic_path
from sparse_embed.common.memory import keep_freed_memory
from sparse_embed.experiments import checkpoints, devices
from sparse_embed.experiments.data import load_data
from sparse_embed.experiments.provenance import provenance
from sparse_embed.experiments.runs import (
    ENCODER,
    RECORD,
    export_saved_model,
    load_encoder,
    load_record,
    save_run,
)
from sparse_embed.experiments.warm_start import copy_weights, existing_encoder, freeze_backbone
from sparse_embed.flags import app
from sparse_embed.flags.config import from_flags
from sparse_embed.flags.data import DataConfig
from sparse_embed.flags.distribution import DistributionConfig
from sparse_embed.flags.logging import LoggingConfig
from sparse_embed.flags.model import ModelConfig
from sparse_embed.flags.objective import ObjectiveConfig
from sparse_embed.flags.optimization import OptimizationConfig
from sparse_embed.flags.output import MODEL_DIR, USE_SAVED_MODEL

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from sparse_embed.datasets.catalogue import DataSet

CONFIG = "config.json"
MOMENTUM = 0.9  # of SGD, as in the paper
PATH_FIGURES = ["recall_at_1", "evaluation_flops_per_row"]  # what --reg_path trades off


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """All that decides what a training run gives."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    objective: ObjectiveConfig = dataclasses.field(default_factory=ObjectiveConfig)
    optimization: OptimizationConfig = dataclasses.field(default_factory=OptimizationConfig)
    distribution: DistributionConfig = dataclasses.field(default_factory=DistributionConfig)

    @property
    def ends(self) -> list[int]:
        """Step at which each stage of the training ends: one stage without --reg_path."""
        steps = self.optimization.steps
        more = self.optimization.path_steps or max(1, steps // 4)
        return [steps + stage * more for stage in range(len(self.objective.weights))]


def check(config: TrainConfig) -> None:
    """Raises UsageError for flags that do not go together, before any work is done."""
    data, model, objective = config.data, config.model, config.objective
    optimization, distribution = config.optimization, config.distribution
    refused = {
        f"--dataset={data.dataset} needs --data_dir": data.dataset != "glyphs"
        and data.data_dir is None,
        "--model=linear and --dataset=dense_embeddings need each other": (model.model == "linear")
        != (data.dataset == "dense_embeddings"),
        f"--regularizer={objective.regularizer} needs --activation=relu or soft_threshold, which "
        "can be exactly zero": objective.regularizer != "none" and model.activation == "none",
        "--initial_probability needs --activation=relu or soft_threshold": model.activation
        == "none"
        and model.initial_probability is not None,
        f"--margin={objective.margin}: expected at most pi/2 with --loss=arcface": objective.loss
        == "arcface"
        and objective.margin > math.pi / 2,
        f"--decay_steps={optimization.decay_steps}: expected 1 to {optimization.steps - 1}, within "
        "--steps, with --learning_rate_schedule=step": optimization.learning_rate_schedule == "step"
        and not 0 < optimization.decay_steps < optimization.steps,
        f"--decay_steps={optimization.decay_steps} needs --learning_rate_schedule=step": (
            optimization.learning_rate_schedule != "step" and optimization.decay_steps > 0
        ),
        f"--logical_cpus={distribution.logical_cpus} needs --strategy=mirrored": (
            distribution.strategy != "mirrored" and distribution.logical_cpus > 1
        ),
        f"--reg_path={objective.reg_path} needs --regularizer=flops or l1": (
            objective.reg_path is not None and objective.regularizer == "none"
        ),
        f"--path_steps={optimization.path_steps} needs --reg_path": objective.reg_path is None
        and optimization.path_steps is not None,
        "--nowarm_start_head needs --warm_start": not model.warm_start_head
        and model.warm_start is None,
        "--notrain_backbone needs --warm_start: it would train on random features": (
            not model.train_backbone and model.warm_start is None
        ),
        "--loss=sdh makes codes of dense embeddings: it needs --activation=none and "
        "--regularizer=none": objective.loss == "sdh"
        and (model.activation != "none" or objective.regularizer != "none"),
        f"--active_bits={objective.active_bits}: expected at most --embedding_dim="
        f"{model.embedding_dim}": objective.loss == "sdh"
        and objective.active_bits > model.embedding_dim,
        f"--examples_per_class={optimization.examples_per_class}: expected a divisor of "
        f"--batch_size={optimization.batch_size}": optimization.batch_size
        % optimization.examples_per_class
        != 0,
        "--xla can compile neither sums over replicas nor the solver of SDH: it needs "
        "--strategy=one_device or auto, and --loss=arcface or triplet": optimization.xla
        and (distribution.strategy in ("mirrored", "multi_worker") or objective.loss == "sdh"),
        "--dataset=tfrecords is read in the order of its files: it needs --examples_per_class=1": (
            data.dataset == "tfrecords" and optimization.examples_per_class > 1
        ),
    }
    for message, is_refused in refused.items():
        if is_refused:
            raise app.UsageError(message)
    if model.warm_start is not None:
        existing_encoder(model.warm_start)
    if objective.regularizer != "none" and objective.warmup_steps > optimization.steps:
        logging.warning(
            "--warmup_steps=%d is beyond --steps=%d: lambda will not reach its full weight",
            objective.warmup_steps,
            optimization.steps,
        )


def build_training_model(
    encoder: "keras.Model", num_classes: int, config: TrainConfig, model_class: type
) -> "keras.Model":
    """Returns encoder -> monitor -> regularization -> what the metric loss takes, for `fit`.

    The penalty acts on the unit-norm embeddings, the f_theta(x) of the paper. ArcFace takes cosines
    with the classes, the triplet loss the embeddings themselves.
    """
    import keras

    from sparse_embed import losses, models

    objective = config.objective
    examples = keras.Input(encoder.input_shape[1:], name="examples")
    embeddings = losses.SparsityMonitor()(encoder(examples))
    if objective.regularizer != "none":
        layer = {"flops": losses.FlopsRegularization, "l1": losses.L1Regularization}
        weight = losses.WeightPath(objective.weights, config.ends[:-1], objective.warmup_steps)
        regularization = layer[objective.regularizer](weight, scope=objective.regularizer_scope)
        embeddings = regularization(embeddings)
    if objective.loss == "arcface":
        embeddings = models.ArcFaceHead(num_classes)(embeddings)
    return model_class(examples, embeddings)


def build_loss(objective: ObjectiveConfig) -> "keras.losses.Loss":
    """Returns the metric loss."""
    from sparse_embed import losses

    if objective.loss == "triplet":
        return losses.TripletSemiHardLoss(objective.margin)
    if objective.loss == "sdh":
        return losses.SDHLoss(objective.active_bits, objective.pairwise_cost, objective.margin)
    return losses.ArcFaceLoss(objective.margin, objective.scale)


def build_optimizer(
    optimization: OptimizationConfig, ends: list[int]
) -> "keras.optimizers.Optimizer":
    """Returns the optimizer with its learning-rate schedule over stages that end there."""
    import keras

    rate: Any = optimization.learning_rate
    if optimization.learning_rate_schedule == "cosine":
        from sparse_embed.experiments.restarts import RestartedCosine

        rate = RestartedCosine(rate, ends)
    elif optimization.learning_rate_schedule == "step":
        rate = keras.optimizers.schedules.PiecewiseConstantDecay(
            [optimization.decay_steps], [rate, rate / 10]
        )
    decay = optimization.weight_decay or None
    if optimization.optimizer == "sgd":
        return keras.optimizers.SGD(rate, momentum=MOMENTUM, weight_decay=decay)
    return keras.optimizers.Adam(rate, weight_decay=decay)


def check_same_experiment(
    model_dir: pathlib.Path, config: TrainConfig, num_classes: int | None = None
) -> None:
    """Refuses what would make the run in `model_dir` another experiment than was started there.

    Args:
        model_dir: folder of the run; nothing is refused if none was started there.
        config: what the flags say now.
        num_classes: how many training classes the data has, once that is known.
    """
    path = model_dir / CONFIG
    if not path.exists():
        return
    # A flag that did not exist when the run was started had the effect of its default.
    before = {**identity(TrainConfig()), **json.loads(path.read_text())}
    now = identity(config)
    changed = [
        f"--{name} was {before[name]}, now {now[name]}"
        for name in sorted(now)
        if before[name] != now[name]
    ]
    if num_classes is not None and before.get("num_classes", num_classes) != num_classes:
        changed.append(
            f"--data_dir={config.data.data_dir} has {num_classes} training classes, before it was "
            f"{before['num_classes']}"
        )
    if changed:
        raise app.UsageError(
            f"--model_dir={model_dir} holds another experiment: {'; '.join(changed)}. Give "
            "another folder, or the same flags to go on"
        )


def _save_start(model_dir: pathlib.Path, config: TrainConfig, num_classes: int) -> None:
    """Writes what was started, for a run that never gets to its record, too."""
    start = {**identity(config), "num_classes": num_classes, "provenance": provenance()}
    with atomic_path(model_dir / CONFIG) as temporary:
        temporary.write_text(json.dumps(start, indent=1))


def identity(config: TrainConfig) -> dict[str, Any]:
    """Returns the flags that make the experiment: where the data lies is none of them."""
    parts = dataclasses.asdict(config).values()
    return {name: value for part in parts for name, value in part.items() if name != "data_dir"}


def evaluator(
    encoder: "keras.Model", data: "DataSet", rerank_model_dir: pathlib.Path | None
) -> Callable[[], dict[str, float]] | None:
    """Returns a function that measures recall and cost on validation classes; None without any."""
    from sparse_embed import retrieval
    from sparse_embed.experiments.embed import embed
    from sparse_embed.experiments.search import leave_one_out_recall

    if "validation" not in data.parts:
        return None
    batches = data.evaluation_batches(data.parts["validation"], 512)
    dense = None
    if rerank_model_dir is not None:
        dense, _ = embed(load_encoder(rerank_model_dir), batches, sparse=False, quiet=True)

    def evaluate() -> dict[str, float]:
        vectors, labels = embed(encoder, batches, sparse=True, quiet=True)
        cost = {"evaluation_flops_per_row": float(retrieval.flops_per_row(vectors))}
        return {**leave_one_out_recall(vectors, labels, dense), **cost}

    return evaluate


def build(
    config: TrainConfig,
    shape: tuple[int, ...],
    num_classes: int,
    strategy: "tf.distribute.Strategy",
) -> tuple["keras.Model", "keras.Model"]:
    """Returns the encoder of examples of that shape, and the compiled model that trains it."""
    from sparse_embed import models

    with strategy.scope():
        encoder = models.build_encoder(
            config.model.model,
            config.model.embedding_dim,
            config.model.activation,
            input_shape=shape,
            width=config.model.width,
            initial_probability=config.model.initial_probability,
        )
        if not config.model.train_backbone:
            freeze_backbone(encoder)
        model = build_training_model(encoder, num_classes, config, devices.model_class(strategy))
        # XLA can compile neither the sums over replicas that batch norm and penalty take, nor the
        # solver of SDH.
        compilable = strategy.num_replicas_in_sync == 1 and config.objective.loss != "sdh"
        xla = "auto" if config.optimization.xla is None else config.optimization.xla
        model.compile(
            build_optimizer(config.optimization, config.ends),
            build_loss(config.objective),
            jit_compile=xla if compilable else False,
        )
    return encoder, model


def train(config: TrainConfig, model_dir: pathlib.Path, log: LoggingConfig) -> dict[str, Any]:
    """Trains an encoder, or goes on with it, and saves it with its record, which is returned.

    A run that has ended is left as it is.
    """
    rerank_model_dir = None
    if log.rerank_model_dir is not None:
        rerank_model_dir = app.existing_path("rerank_model_dir", log.rerank_model_dir, ENCODER)
    if devices.is_chief():
        check_same_experiment(model_dir, config)
    if (model_dir / RECORD).exists():
        return load_record(model_dir)  # it has ended: nothing is written again
    keep_freed_memory()
    optimization = config.optimization
    strategy = devices.set_up(config.distribution, optimization.seed)
    # Only now: a mistake is told at once, and nothing has used the devices before they are set up.
    from sparse_embed.experiments.recorder import Intervals, Recorder

    data = load_data(config.data)
    part = data.parts["train"]
    if devices.is_chief():
        check_same_experiment(model_dir, config, part.num_classes)
    _warn_of_collapse(config, part.num_classes)
    batch_size = optimization.batch_size * strategy.num_replicas_in_sync
    encoder, model = build(config, data.shape, part.num_classes, strategy)
    with strategy.scope():
        start = checkpoints.restore(model_dir / "checkpoints" / checkpoints.LAST, model)
        if start == 0 and config.model.warm_start is not None:
            earlier = load_encoder(existing_encoder(config.model.warm_start))
            copy_weights(earlier, encoder, config.model.warm_start_head)
    if devices.is_chief() and not (model_dir / CONFIG).exists():
        _save_start(model_dir, config, part.num_classes)
    draw = functools.partial(data.training_batches, part, batch_size, optimization.seed)
    if optimization.examples_per_class > 1:
        draw = functools.partial(draw, pick=_class_groups(part.labels, optimization))
    first = next(iter(draw()))[0]
    recorder = Recorder(
        model_dir,
        encoder,
        config.ends,
        start,
        batch_size,
        Intervals(log.evaluate_every, log.checkpoint_every),
        first[:256].numpy(),
        evaluator(encoder, data, rerank_model_dir) if devices.is_chief() else None,
        writes=devices.is_chief(),
    )

    def record(weight: float) -> dict[str, Any]:
        objective = dataclasses.replace(config.objective, regularizer_weight=weight)
        return {
            "config": dataclasses.asdict(dataclasses.replace(config, objective=objective)),
            "num_classes": part.num_classes,
            "replicas": strategy.num_replicas_in_sync,
            "seconds": sum(row["seconds"] for row in recorder.curves),
            "weights_crc32": _checksum(encoder),
            "curves": recorder.curves,
            "provenance": provenance(),
        }

    for weight, end in zip(config.objective.weights, config.ends, strict=True):
        if end < start:
            continue
        # An "epoch" of Keras is an interval of the curves here; the last one may be shorter.
        for stop, interval in _intervals(start, end, log.summary_every):
            model.fit(
                draw(start_step=start),
                epochs=(stop - start) // interval,
                steps_per_epoch=interval,
                verbose=0,
                callbacks=[recorder],
            )
            start = stop
        if config.objective.reg_path is not None and devices.is_chief():
            save_run(snapshot_folder(model_dir, weight), encoder, record(weight))
    recorder.close()
    result = record(config.objective.weights[-1])
    if devices.is_chief():
        save_run(model_dir, encoder, result)
    return result


def _class_groups(labels: np.ndarray, optimization: OptimizationConfig) -> Callable:
    """Returns the order of examples that --examples_per_class asks for."""
    from sparse_embed.datasets.class_groups import class_groups

    largest = int(np.bincount(labels).max())
    if optimization.examples_per_class > largest:
        raise app.UsageError(
            f"--examples_per_class={optimization.examples_per_class}: expected at most {largest}, "
            "the examples of the largest class"
        )
    return class_groups(labels, optimization.examples_per_class)


def snapshot_folder(model_dir: pathlib.Path, weight: float) -> pathlib.Path:
    """Returns where the encoder of one weight of --reg_path is kept."""
    return model_dir / "path" / f"lambda_{weight:g}"


def _checksum(encoder: "keras.Model") -> str:
    """Returns a fingerprint of the weights: workers and repeated runs can be compared by it."""
    crc = 0
    for weight in encoder.get_weights():
        crc = zlib.crc32(weight.tobytes(), crc)
    return f"{crc:08x}"


def _intervals(start: int, steps: int, every: int) -> list[tuple[int, int]]:
    """Returns (end, interval) of the whole intervals from `start` on, and of the rest."""
    whole = start + (steps - start) // every * every
    return [(stop, n) for stop, n in ((whole, every), (steps, steps - whole)) if n and stop > start]


def _warn_of_collapse(config: TrainConfig, num_classes: int) -> None:
    if config.objective.regularizer != "none" and config.model.embedding_dim >= num_classes:
        logging.warning(
            "--embedding_dim=%d is not below the %d training classes: a sparse model can collapse "
            "to one dimension per class and fail on unseen classes (section 4 of the paper)",
            config.model.embedding_dim,
            num_classes,
        )


def config_from_flags() -> TrainConfig:
    """Returns what the flags say, unchecked."""
    return TrainConfig(
        from_flags(DataConfig),
        from_flags(ModelConfig),
        from_flags(ObjectiveConfig),
        from_flags(OptimizationConfig),
        from_flags(DistributionConfig),
    )


def main() -> None:
    """Reads the flags and trains."""
    config = config_from_flags()
    check(config)
    model_dir = app.writable_folder("model_dir", MODEL_DIR.value)
    record = train(config, model_dir, from_flags(LoggingConfig))
    if config.objective.reg_path is not None:
        rows = {row["step"]: row for row in record["curves"]}
        for weight, end in zip(config.objective.weights, config.ends, strict=True):
            figures = {name: rows[end].get(name, math.nan) for name in PATH_FIGURES}
            text = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
            print(f"{snapshot_folder(model_dir, weight)}: {text}")
    if USE_SAVED_MODEL.value and devices.is_chief():
        print(export_saved_model(model_dir))
    seconds, crc = record["seconds"], record["weights_crc32"]
    print(f"{model_dir / ENCODER}: trained in {seconds:.0f} s, weights {crc}")


if __name__ == "__main__":
    app.run(main)
