"""How the process keeps its memory."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Makes malloc keep what is freed; returns whether it is glibc's, which alone can be told so.

    Otherwise it gives every block above 32 MB back to the system at once, and a training step pays
    for fresh pages of all its large tensors: a fifth of the time of `haarnet` under XLA.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # One arena for all threads: those of the others are too small for large blocks.
    return all([mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, -1), mallopt(_M_ARENA_MAX, 1)])
