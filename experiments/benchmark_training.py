r"""Prints how fast training is, and what pipeline and callbacks take of it.

    python -m sparse_embed.experiments.benchmark_training --preset=glyphs_flops

Times in turn, round by round, so that other work on the machine does not favour one of them:
- "training": what `train` does, with its data pipeline, its curves, guards and checkpoints;
- "bare": the same network on one batch that is in memory, nothing but forward, backward, update;
- "pytorch": that in PyTorch (`--model=convnet` with arcface and flops, where torch is installed).
The first round, in which TensorFlow compiles, does not count.
"""

import importlib.util
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl import flags

from sparse_embed.experiments import devices, search, train
from sparse_embed.experiments.data import load_data
from sparse_embed.flags import app
from sparse_embed.flags.logging import LoggingConfig
from sparse_embed.flags.output import OUTPUT

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_ROUNDS = flags.DEFINE_integer("rounds", 6, "Rounds that are timed.", lower_bound=1)
_ROUND_STEPS = flags.DEFINE_integer(
    "round_steps", LoggingConfig.summary_every, "Steps of each in a round.", lower_bound=1
)

Step = Callable[[], Any]


def bare_step(
    config: train.TrainConfig,
    encoder: "keras.Model",
    model: "keras.Model",
    batch: tuple["tf.Tensor", "tf.Tensor"],
) -> Step:
    """Returns a compiled step on one batch: forward, backward and update, and nothing else."""
    import tensorflow as tf

    from sparse_embed import losses

    objective, metric_loss = config.objective, train.build_loss(config.objective)
    penalty = {"flops": losses.relaxed_flops, "l1": losses.l1_norm}.get(objective.regularizer)
    variables = model.trainable_variables
    optimizer = train.build_optimizer(config.optimization, config.ends)
    optimizer.build(variables)
    examples, labels = batch

    @tf.function(jit_compile=model.jit_compile)
    def step():
        with tf.GradientTape() as tape:
            embeddings = encoder(examples, training=True)
            outputs = model.layers[-1](embeddings) if objective.loss == "arcface" else embeddings
            loss = metric_loss(labels, outputs)
            if penalty is not None:
                loss += objective.regularizer_weight * penalty(embeddings)
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def torch_step(
    config: train.TrainConfig,
    model: "keras.Model",
    num_classes: int,
    batch: tuple["tf.Tensor", "tf.Tensor"],
) -> Step | None:
    """Returns the same step in PyTorch; None without torch, or for another network or loss."""
    kinds = (config.model.model, config.objective.loss, config.objective.regularizer)
    examples, labels = (tensor.numpy() for tensor in batch)
    if kinds != ("convnet", "arcface", "flops") or examples.shape[-1] != 1:
        print(f"without PyTorch: no such network there for {' '.join(kinds)}")
        return None
    if importlib.util.find_spec("torch") is None:
        print("without PyTorch: torch is not installed (pip install 'sparse-embed[torch]')")
        return None
    import torch

    from sparse_embed.experiments.torch_training import ArcFaceConvnet, Trainer

    torch.set_num_threads(os.cpu_count() or 1)
    channels = [kernel.shape[-1] for kernel in model.trainable_variables if len(kernel.shape) == 4]
    network = ArcFaceConvnet(channels, examples.shape[1], config.model.embedding_dim, num_classes)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    if parameters != sum(
        variable.value.shape.num_elements() for variable in model.trainable_variables
    ):
        raise AssertionError(f"{parameters} parameters in PyTorch: not the same network")
    rate = config.optimization.learning_rate
    return Trainer(network, examples, labels, config.objective, rate).step


def measure(
    config: train.TrainConfig, rounds: int, steps: int, folder: pathlib.Path
) -> list[dict[str, Any]]:
    """Returns one record per way of training: `method`, `images_per_second`, `seconds` per round.

    Args:
        config: of the training; its length is of no meaning here.
        rounds: how many count.
        steps: of each way in a round.
        folder: where the training may write.
    """
    import keras

    from sparse_embed.experiments.recorder import Intervals, Recorder

    strategy = devices.set_up(config.distribution, config.optimization.seed)
    data = load_data(config.data)
    part, seed = data.parts["train"], config.optimization.seed
    batch_size = config.optimization.batch_size * strategy.num_replicas_in_sync
    encoder, model = train.build(config, data.shape, part.num_classes, strategy)
    batches = data.training_batches(part, batch_size, seed)
    batch = next(iter(batches))
    others = {
        "bare": bare_step(config, encoder, model, batch),
        "pytorch": torch_step(config, model, part.num_classes, batch),
    }
    seconds: dict[str, list[float]] = {"training": []}
    seconds |= {name: [] for name, step in others.items() if step is not None}

    class Rounds(keras.callbacks.Callback):
        """Times the epochs of `fit`, and the other ways of training between them."""

        def on_epoch_begin(self, epoch, logs=None):
            self._start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            seconds["training"].append(time.perf_counter() - self._start)
            for name, step in others.items():
                if step is not None:
                    start = time.perf_counter()
                    for _ in range(steps):
                        last = step()
                    float(last)  # waits for the device
                    seconds[name].append(time.perf_counter() - start)

    total = (rounds + 1) * steps
    intervals = Intervals(evaluate=total + 1, checkpoint=LoggingConfig.checkpoint_every)
    recorder = Recorder(
        folder, encoder, [total], 0, batch_size, intervals, batch[0][:256].numpy(), evaluate=None
    )
    # Recorder first: what it does at the end of an epoch is part of the training's time.
    callbacks = [recorder, Rounds()]
    model.fit(batches, epochs=rounds + 1, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
    recorder.close()
    return [
        {
            "method": name,
            "images_per_second": batch_size * steps / statistics.median(taken[1:]),
            "seconds": taken[1:],
        }
        for name, taken in seconds.items()
    ]


def speed_of_training(records: list[dict[str, Any]]) -> dict[str, float]:
    """Returns the median over the rounds of each other way's time divided by the training's."""
    training, *others = records
    return {
        record["method"]: statistics.median(
            other / own for other, own in zip(record["seconds"], training["seconds"], strict=True)
        )
        for record in others
    }


def main() -> None:
    """Reads the flags, measures and prints."""
    config = train.config_from_flags()
    train.check(config)
    output = app.writable_file("output", OUTPUT.value, ".json") if OUTPUT.value else None
    with tempfile.TemporaryDirectory() as folder:
        records = measure(config, _ROUNDS.value, _ROUND_STEPS.value, pathlib.Path(folder))
    ratios = speed_of_training(records)
    for record in records:
        print(f"{record['method']:10}{record['images_per_second']:10,.0f} images per second")
    for name, ratio in ratios.items():
        print(f"training runs at {ratio:.2f} x the speed of {name}")
    if output:
        search.save_records(output, records, speed_of_training=ratios, flags=train.identity(config))


if __name__ == "__main__":
    app.run(main)
