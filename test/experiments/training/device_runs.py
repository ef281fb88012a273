"""Trains presets of the paper for two steps on some logical CPUs; see `test_multi_device.py`.

Run as a script, since TensorFlow can be given logical devices only before anything has used it:

    python device_runs.py OUTPUT DEVICES IMAGES PRESET...
"""

import dataclasses
import pathlib
import sys

import keras
import tensorflow as tf

from sparse_embed.datasets.catalogue import DATASETS
from sparse_embed.experiments.training.loop import train
from sparse_embed.flags.options.train import preset_config
from sparse_embed.flags.train_config import LoggingConfig

BATCH = 16  # of all devices together
WIDTH = {"mobilefacenet": 0.25, "resnet101": 0.125}


def narrowed(name, devices, images):
    """The preset as it is, but for narrow layers, few images, two steps and a warm-up of one."""
    config = preset_config(name)
    options = DATASETS["image_folder"].options(image_size=16)
    return dataclasses.replace(
        config,
        data=dataclasses.replace(
            config.data, dataset="image_folder", data_dir=str(images), options=options
        ),
        model=dataclasses.replace(config.model, width=WIDTH[config.model.model]),
        objective=dataclasses.replace(
            # lambda is 0 at the first step and whole at the second.
            config.objective,
            warmup_steps=1,
        ),
        optimization=dataclasses.replace(
            config.optimization, steps=2, decay_steps=1, batch_size=BATCH // devices
        ),
        distribution=dataclasses.replace(
            config.distribution,
            strategy="mirrored" if devices > 1 else "one_device",
            logical_cpus=devices,
            # In float32, rounding decides on which side of a kink of PReLU a value near 0 lies.
            precision="float64",
        ),
    )


class NoDropout(keras.layers.Layer):
    """In place of ResNet-101's dropout, of which each device draws its own."""

    def __init__(self, rate):
        super().__init__()

    def call(self, inputs):
        return inputs


def main(output, devices, images, *names):
    keras.layers.Dropout = NoDropout
    # Drawing and optimizing a graph for each device would take minutes.
    tf.config.run_functions_eagerly(True)
    for name in names:
        folder = pathlib.Path(output) / name / devices
        config = narrowed(name, int(devices), images)
        train(config, folder, LoggingConfig(summary_every=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
