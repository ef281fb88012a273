"""The budget of sparse codes for dense embeddings."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

__getattr__ = defined_on_import(
    globals(),
    {
        "CODE_DIM": lambda: flags.DEFINE_integer(
            "code_dim", 512, "Dimension of the sparse codes.", lower_bound=1
        ),
        "FLOPS": lambda: flags.DEFINE_float(
            "flops",
            None,
            "The most multiply-adds per row that a search may cost; 2 without --code_nonzeros.",
        ),
        "NONZEROS": lambda: flags.DEFINE_integer(
            "code_nonzeros", None, "The most non-zeros of a code.", lower_bound=1
        ),
        "STEPS": lambda: flags.DEFINE_integer(
            "learning_steps", 1000, "Training steps of the codes.", lower_bound=1
        ),
    },
)
