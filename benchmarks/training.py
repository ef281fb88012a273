r"""Prints how fast training is, and how much time the pipeline and the callbacks take.

    python benchmarks/training.py --preset=glyphs_flops

Times these in turn, round by round, so that other load on the machine does not favour one of them:
- "training": `train` itself, with its data pipeline, curves, guards and checkpoints;
- "bare": the same network on one batch in memory, only forward, backward and update.
The first round, in which TensorFlow compiles, does not count.
"""

import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparse_embed.common.options import option
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.data import load_data
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.encoders.embedding import inference
from sparse_embed.experiments.training import devices
from sparse_embed.experiments.training.build import build, metric_loss, optimizer
from sparse_embed.experiments.training.checks import check
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.flags.train_config import LoggingConfig, TrainConfig

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

Step = Callable[[], Any]


def bare_step(
    config: TrainConfig,
    encoder: "keras.Model",
    model: "keras.Model",
    batch: tuple["tf.Tensor", "tf.Tensor"],
) -> Step:
    """Returns a compiled step on one batch: only forward, backward and update."""
    import tensorflow as tf

    from sparse_embed import losses

    objective, compare = config.objective, metric_loss(config.objective)
    row, kind = losses.REGULARIZERS.get(objective.regularizer), losses.LOSSES[objective.loss]
    penalty = row.layer(0.0).penalty if row else None
    variables = model.trainable_variables
    update = optimizer(config.optimization, config.ends)
    update.build(variables)
    examples, labels = batch

    @tf.function(jit_compile=model.jit_compile)
    def step() -> Any:
        with tf.GradientTape() as tape:
            embeddings = encoder(examples, training=True)
            outputs = model.layers[-1](embeddings) if kind.takes == "cosines" else embeddings
            loss = compare(labels, outputs)
            if penalty is not None:
                means = tf.reduce_mean(tf.abs(embeddings), axis=0)
                loss += objective.regularizer_weight * penalty(means)
        update.apply(tape.gradient(loss, variables), variables)
        return loss

    compiled: Step = step
    return compiled


def measure(config: TrainConfig, rounds: int, steps: int, folder: pathlib.Path) -> list[Record]:
    """Returns one record per way of training: `method`, `images_per_second`, `seconds` per round.

    Args:
        config: of the training run; its length is ignored.
        rounds: how many rounds count.
        steps: steps of each way in a round.
        folder: where the training run may write.
    """
    import keras

    from sparse_embed.experiments.training.recorder import Intervals, Recorder

    strategy = devices.set_up(config.distribution, config.optimization.seed)
    part, seed = load_data(config.data)["train"], config.optimization.seed
    batch_size = config.optimization.batch_size * strategy.num_replicas_in_sync
    encoder, model = build(config, part.shape, part.num_classes, strategy)
    batches = part.training_batches(batch_size, seed)
    batch = next(iter(batches))
    step = bare_step(config, encoder, model, batch)
    seconds: dict[str, list[float]] = {"training": [], "bare": []}

    class Rounds(keras.callbacks.Callback):
        """Times the epochs of `fit`, and bare steps between them."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._start = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seconds["training"].append(time.perf_counter() - self._start)
            start = time.perf_counter()
            for _ in range(steps):
                last = step()
            float(last)  # waits for the device
            seconds["bare"].append(time.perf_counter() - start)

    total = (rounds + 1) * steps
    intervals = Intervals(evaluate=total + 1, checkpoint=LoggingConfig.checkpoint_every)
    recorder = Recorder(
        folder,
        inference(encoder),
        [total],
        0,
        batch_size,
        intervals,
        batch[0][:256].numpy(),
        evaluate=None,
    )
    # The recorder comes first: its work at the end of an epoch is part of the time of "training".
    callbacks = [recorder, Rounds()]
    model.fit(
        batches,
        epochs=rounds + 1,
        steps_per_epoch=steps,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    recorder.close()
    return [
        {
            "method": name,
            "images_per_second": batch_size * steps / statistics.median(taken[1:]),
            "seconds": taken[1:],
        }
        for name, taken in seconds.items()
    ]


def speed_of_training(records: list[Record]) -> float:
    """Returns the median over the rounds of the time of "bare" divided by that of "training"."""
    training, bare = (record["seconds"] for record in records)
    ratios: list[float] = [other / own for other, own in zip(bare, training, strict=True)]
    return statistics.median(ratios)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    config: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    logging: LoggingConfig = dataclasses.field(default_factory=LoggingConfig)  # of presets
    output: str | None = fields.output()
    rounds: int = option(6, "Rounds to time.", lower=1)
    round_steps: int = option(LoggingConfig().summary_every, "Steps of each in a round.", lower=1)


def main(options: Options) -> None:
    """Measures and prints."""
    config = options.config
    check(config)
    output = app.writable_file("output", options.output, ".json") if options.output else None
    with tempfile.TemporaryDirectory() as folder:
        found = measure(config, options.rounds, options.round_steps, pathlib.Path(folder))
    ratio = speed_of_training(found)
    for record in found:
        print(f"{record['method']:10}{record['images_per_second']:10,.0f} images per second")
    print(f"training runs at {ratio:.2f} x the speed of bare steps")
    if output:
        settings = {"speed_of_training": {"bare": ratio}, "flags": config.identity}
        records.save_all(output, found, settings=settings)


if __name__ == "__main__":
    app.run(main, Options)
