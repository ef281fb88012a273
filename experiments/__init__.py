"""absl scripts, one per experiment: `python -m sparse_embed.experiments.<name> --flags`."""

import os

from sparse_embed.common.extras import require

require(__name__, "train", "absl")

# TensorFlow logs its start-up to stderr, where our one-line errors go; warnings stay.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
