"""absl scripts, one per experiment: `python -m sparse_embed.experiments.<name> --flags`."""

from sparse_embed.common.extras import require

require(__name__, "train", "absl")
