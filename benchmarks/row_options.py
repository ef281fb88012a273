"""Options of rows that are made up: see `workload`."""

from functools import partial

from sparse_embed.common.options import option

rows = partial(option, 999_000, "Rows of the database.", lower=1)
batch_rows = partial(option, 100_000, "Rows per batch.", lower=1)
dims = partial(option, 1024, "Dimensions of the sparse rows.", lower=1)
nnz = partial(option, 32, "Mean non-zeros per row, roughly.", lower=1)
