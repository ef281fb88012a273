"""Writes a training run's curves, histograms and images for TensorBoard."""

import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

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


class Summaries:
    """Writes event files into a folder."""

    def __init__(self, folder: pathlib.Path):
        self._writer = tf.summary.create_file_writer(str(folder))

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
