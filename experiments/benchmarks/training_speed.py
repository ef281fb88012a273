"""How fast training is, beside bare steps on one batch, and beside PyTorch."""

import importlib.util
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparse_embed.experiments.evaluation.embedding import inference
from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.training import devices
from sparse_embed.experiments.training.build import build, metric_loss, optimizer
from sparse_embed.experiments.training.data import load_data
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
    def step():
        with tf.GradientTape() as tape:
            embeddings = encoder(examples, training=True)
            outputs = model.layers[-1](embeddings) if kind.takes == "cosines" else embeddings
            loss = compare(labels, outputs)
            if penalty is not None:
                means = tf.reduce_mean(tf.abs(embeddings), axis=0)
                loss += objective.regularizer_weight * penalty(means)
        update.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def torch_step(
    config: TrainConfig,
    model: "keras.Model",
    num_classes: int,
    batch: tuple["tf.Tensor", "tf.Tensor"],
) -> Step | None:
    """Returns the same step in PyTorch; None without torch, or for another network or loss."""
    kinds = (config.model.model, config.objective.loss, config.objective.regularizer)
    examples, labels = (tensor.numpy() for tensor in batch)
    if kinds != ("convnet", "arcface", "flops") or examples.shape[-1] != 1:
        print(f"without PyTorch: it has no such network for {' '.join(kinds)}")
        return None
    if importlib.util.find_spec("torch") is None:
        print("without PyTorch: torch is not installed (pip install 'sparse-embed[torch]')")
        return None
    import torch

    from sparse_embed.experiments.benchmarks.torch_training import ArcFaceConvnet, Trainer

    torch.set_num_threads(os.cpu_count() or 1)
    channels = [kernel.shape[-1] for kernel in model.trainable_variables if len(kernel.shape) == 4]
    network = ArcFaceConvnet(channels, examples.shape[1], config.model.embedding_dim, num_classes)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    if parameters != sum(
        variable.value.shape.num_elements() for variable in model.trainable_variables
    ):
        raise AssertionError(f"{parameters} parameters in PyTorch: the networks differ")
    rate = config.optimization.learning_rate
    return Trainer(network, examples, labels, config.objective, rate).step


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


def speed_of_training(records: list[Record]) -> dict[str, float]:
    """Returns the median over the rounds of each other way's time divided by that of "training"."""
    training, *others = records
    return {
        record["method"]: statistics.median(
            other / own for other, own in zip(record["seconds"], training["seconds"], strict=True)
        )
        for record in others
    }
