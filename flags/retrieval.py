"""What to search in, and what counts as a result."""

from absl import flags

DATABASE = flags.DEFINE_string("database", None, "Sparse embeddings to search in (CSR, .npz).")
K = flags.DEFINE_integer(
    "k", 1000, "Maximum number of results of the sparse search.", lower_bound=1
)
_THRESHOLD = flags.DEFINE_float(
    "threshold", 0.25, "Smallest score of a result of the sparse search; -1 for no limit."
)


def threshold() -> float | None:
    """Returns --threshold; None, for no threshold, if it is negative."""
    return None if _THRESHOLD.value < 0 else _THRESHOLD.value
