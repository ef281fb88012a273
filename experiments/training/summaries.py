"""Writes a training run's curves, histograms, images and hyper-parameters for TensorBoard."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from sparse_embed.flags.config import option_fields
from sparse_embed.flags.train_config import PARTS, TrainConfig

# Metric of the training log -> tag. Terms have their names in the objective.
TAGS = {
    "loss": "loss/total",
    "metric_loss": "loss/metric",
    "penalty_loss": "loss/regularization",
    "regularizer_weight": "regularizer/lambda",
    "penalty": "regularizer/penalty",
    "learning_rate": "training/learning_rate",
    "images_per_second": "training/images_per_second",
    "sparsity_flops_per_row": "sparsity/flops_per_row",
    "sparsity_flops_per_row_unbiased": "sparsity/flops_per_row_unbiased",
    "sparsity_relaxed_flops": "sparsity/relaxed_flops",
    "sparsity_active_dimensions": "sparsity/active_dimensions",
    "sparsity_activation_probability": "sparsity/activation_probability",
    "sparsity_dead_dimensions": "sparsity/dead_dimensions",
    "sparsity_suboptimality_ratio": "sparsity/suboptimality_ratio",
    "recall_at_1": "evaluation/recall_at_1",
    "recall_at_1_reranked": "evaluation/recall_at_1_reranked",
    "evaluation_flops_per_row": "evaluation/flops_per_row",
}

# Columns of the HParams dashboard: flags, then metrics. lambda is 0 without a regularizer.
HYPER_PARAMETERS = [
    *("lambda", "regularizer", "d", "activation", "model", "width", "loss", "margin"),
    *("learning_rate", "batch_size", "steps", "seed", "dataset"),
]
_FLAGS = {"lambda": "regularizer_weight", "d": "embedding_dim"}  # of other names
RESULTS = {
    "recall_at_1": "recall@1",
    "recall_at_1_reranked": "recall@1, re-ranked",
    "evaluation_flops_per_row": "F",
    "sparsity_suboptimality_ratio": "sub-optimality ratio",
}


def hyper_parameters(config: TrainConfig) -> dict[str, float | str]:
    """Returns the values of `HYPER_PARAMETERS`."""
    flags = config.identity
    values = {name: flags[_FLAGS.get(name, name)] for name in HYPER_PARAMETERS}
    if config.objective.regularizer == "none":
        values["lambda"] = 0.0
    return values


def _domain(flag: str) -> Any:
    """Returns what the dashboard can filter by: the words of a flag, or a range of numbers."""
    fields = {field.name: field for part in PARTS for field in option_fields(part)}
    choices = fields[flag].metadata["choices"]
    if choices is None:
        return hparams.RealInterval(0.0, 1e9)
    return hparams.Discrete(list(choices() if callable(choices) else choices))


class Summaries:
    """Writes event files into a folder."""

    def __init__(self, folder: pathlib.Path):
        self._writer = tf.summary.create_file_writer(str(folder))

    def trial(self, name: str, values: Mapping[str, float | str]) -> None:
        """Writes the columns of the HParams dashboard and the values of one row."""
        columns = [hparams.HParam(key, _domain(_FLAGS.get(key, key))) for key in HYPER_PARAMETERS]
        metrics = [hparams.Metric(TAGS[key], display_name=text) for key, text in RESULTS.items()]
        with self._writer.as_default(0):
            hparams.hparams_config(columns, metrics)
            hparams.hparams(dict(values), trial_id=name)
        self._writer.flush()

    def scalars(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes every metric that has a tag."""
        with self._writer.as_default(step):
            for name, value in metrics.items():
                if name in TAGS:
                    tf.summary.scalar(TAGS[name], value)
        self._writer.flush()

    def histograms(self, step: int, probabilities: np.ndarray, embeddings: np.ndarray) -> None:
        """Writes how often the dimensions are active, and how strongly."""
        with self._writer.as_default(step):
            tf.summary.histogram("sparsity/activation_probabilities", probabilities)
            tf.summary.histogram("sparsity/activations", embeddings[embeddings != 0])
        self._writer.flush()

    def images(self, step: int, images: np.ndarray) -> None:
        """Writes some training images, scaled to their own range."""
        low, high = images.min(), images.max()
        with self._writer.as_default(step):
            tf.summary.image("images", (images - low) / max(high - low, 1e-9), max_outputs=16)
        self._writer.flush()
