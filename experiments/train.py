r"""Trains an encoder: metric loss plus lambda(t) x sparsity penalty (section 4 of the paper).

    python -m sparse_embed.experiments.train --model_dir=runs/sparse --regularizer_weight=30
    python -m sparse_embed.experiments.train --model_dir=runs/dense --activation=none \
        --regularizer=none --embedding_dim=256

Leaves in --model_dir the encoder (`encoder.keras`, which gives unit-norm embeddings) and
`train.json`: every flag, the training curves, the time it took, versions and hardware.
"""

import dataclasses
import pathlib
import time
from typing import TYPE_CHECKING, Any

from sparse_embed.experiments.provenance import provenance
from sparse_embed.experiments.runs import ENCODER, save_run
from sparse_embed.flags import app
from sparse_embed.flags.config import from_flags
from sparse_embed.flags.data import DataConfig
from sparse_embed.flags.model import ModelConfig
from sparse_embed.flags.objective import ObjectiveConfig
from sparse_embed.flags.optimization import OptimizationConfig
from sparse_embed.flags.output import MODEL_DIR

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """All that decides what a training run gives."""

    data: DataConfig
    model: ModelConfig
    objective: ObjectiveConfig
    optimization: OptimizationConfig


def build_training_model(
    encoder: "keras.Model", num_classes: int, objective: ObjectiveConfig
) -> "keras.Model":
    """Returns encoder -> regularization -> ArcFace cosines, for `fit`.

    The penalty acts on the unit-norm embeddings, the f_theta(x) of the paper.
    """
    import keras

    from sparse_embed import losses, models

    images = keras.Input(encoder.input_shape[1:], name="images")
    embeddings = encoder(images)
    if objective.regularizer != "none":
        layer = {"flops": losses.FlopsRegularization, "l1": losses.L1Regularization}
        weight = losses.QuadraticWarmup(objective.regularizer_weight, objective.warmup_steps)
        regularization = layer[objective.regularizer](
            weight, scope=objective.regularizer_scope, name=objective.regularizer
        )
        embeddings = regularization(embeddings)
    return keras.Model(images, models.ArcFaceHead(num_classes)(embeddings))


def build_optimizer(optimization: OptimizationConfig) -> "keras.optimizers.Optimizer":
    """Returns the optimizer with its learning-rate schedule."""
    import keras

    rate: Any = optimization.learning_rate
    if optimization.learning_rate_schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(rate, decay_steps=optimization.steps)
    if optimization.optimizer == "sgd":
        return keras.optimizers.SGD(rate, momentum=0.9)
    return keras.optimizers.Adam(rate)


def train(config: TrainConfig, model_dir: pathlib.Path) -> dict[str, Any]:
    """Trains an encoder and saves it with its record, which is returned."""
    import keras

    from sparse_embed import losses, models
    from sparse_embed.datasets import glyphs
    from sparse_embed.experiments.progress import ProgressBar

    optimization = config.optimization
    keras.utils.set_random_seed(optimization.seed)
    part = glyphs.split(glyphs.load(config.data.data_dir)).train
    batches = glyphs.training_batches(part, optimization.batch_size, optimization.seed)
    encoder = models.build_encoder(
        config.model.model,
        config.model.embedding_dim,
        config.model.activation,
        input_shape=tuple(batches.element_spec[0].shape[1:]),
        width=config.model.width,
    )
    model = build_training_model(encoder, part.num_classes, config.objective)
    model.compile(
        build_optimizer(optimization),
        losses.ArcFaceLoss(config.objective.margin, config.objective.scale),
    )
    started = time.perf_counter()
    # Curves get a point every 100 steps: Keras reports once an "epoch".
    epoch = min(100, optimization.steps)
    history = model.fit(
        batches.take(optimization.steps),
        epochs=-(-optimization.steps // epoch),
        steps_per_epoch=epoch,
        verbose=0,
        callbacks=[ProgressBar(f"training {model_dir.name}", optimization.steps)],
    )
    record = {
        "config": dataclasses.asdict(config),
        "num_classes": part.num_classes,
        "steps_per_point": epoch,
        "curves": history.history,
        "seconds": time.perf_counter() - started,
        "provenance": provenance(),
    }
    save_run(model_dir, encoder, record)
    return record


def main() -> None:
    """Reads the flags and trains."""
    config = TrainConfig(
        from_flags(DataConfig),
        from_flags(ModelConfig),
        from_flags(ObjectiveConfig),
        from_flags(OptimizationConfig),
    )
    model_dir = app.writable_folder("model_dir", MODEL_DIR.value)
    record = train(config, model_dir)
    print(f"{model_dir / ENCODER}: trained in {record['seconds']:.0f} s")


if __name__ == "__main__":
    app.run(main)
