"""The memory of the process: how much it took, and keeping what is freed."""

import ctypes
import resource
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Makes glibc's malloc keep freed memory; returns whether malloc is glibc's.

    Otherwise it returns every block above 32 MB to the system at once, and a training step pays
    for fresh pages of all its large tensors: a fifth of the time of `haarnet` under XLA.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # One arena for all threads: additional arenas are too small for large blocks.
    return all([mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, -1), mallopt(_M_ARENA_MAX, 1)])


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
