"""Data sets as tf.data pipelines."""

from sparse_embed.common.extras import require

require(__name__, "train", "tensorflow", "absl")
