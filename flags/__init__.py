"""absl flag definitions, one module per concern."""

from sparse_embed.common.extras import require

require(__name__, "train", "absl")
