"""Flags of rows that are made up: see `workload`."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

__getattr__ = defined_on_import(
    globals(),
    {
        "ROWS": lambda: flags.DEFINE_integer(
            "rows", 999_000, "Rows of the database.", lower_bound=1
        ),
        "BATCH_ROWS": lambda: flags.DEFINE_integer(
            "batch_rows", 100_000, "Rows per batch.", lower_bound=1
        ),
        "DIMS": lambda: flags.DEFINE_integer(
            "dims", 1024, "Dimensions of the sparse rows.", lower_bound=1
        ),
        "NNZ": lambda: flags.DEFINE_integer(
            "nnz", 32, "Mean non-zeros per row, roughly.", lower_bound=1
        ),
    },
)
