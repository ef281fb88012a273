"""Data sets as tf.data pipelines."""
