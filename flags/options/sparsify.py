"""Options of `sparsify`."""

import dataclasses

from sparse_embed.common.options import option
from sparse_embed.flags.options import fields


@dataclasses.dataclass(frozen=True)
class Options:
    """Dense embeddings, the budget of their codes, and what is compared."""

    embeddings: str | None = option(None, "Dense embeddings (.npy), a row for each.")
    labels: str | None = option(None, "Labels of the rows (.npy), integers or strings.")
    output: str | None = option(None, "Folder to make.")
    code_dim: int = fields.code_dim()
    code_nonzeros: int | None = fields.code_nonzeros()
    flops: float | None = option(
        None, "The most multiply-adds per row that a search may cost; 2 without --code_nonzeros."
    )
    learning_steps: int = option(1000, "Training steps of the codes.", lower=1)
    compared_rows: int = option(
        100_000,
        "Rows, drawn at random, on which other methods are compared; 0 for none, or 2 or more.",
        lower=0,
    )
    num_threads: int = fields.num_threads()
