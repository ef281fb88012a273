"""Sets how many threads NumPy and faiss use in a `with` block, and restores the number after it."""

import contextlib
import functools
import os
import threading
import warnings
from collections.abc import Iterator

import threadpoolctl

from sparse_embed.common.checks import check_number

_blas_turn = threading.RLock()


@contextlib.contextmanager
def faiss_threads(count: int) -> Iterator[None]:
    """Lets faiss use `count` threads inside the block; OpenMP has a number for each thread."""
    import faiss

    check_number("num_threads", count, integer=True, minimum=1)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@contextlib.contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Lets NumPy's matrix products use `count` threads inside the block.

    BLAS has one number for the whole process, so one thread at a time is in such a block: others
    wait for it. A BLAS that threadpoolctl does not know is left as it is, with a warning.
    """
    check_number("num_threads", count, integer=True, minimum=1)
    with _blas_turn, _blas().limit(limits=count):
        yield


def _after_fork_in_child() -> None:
    global _blas_turn  # perhaps that of a thread which the child does not have
    _blas_turn = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    """Returns the controller of the BLAS libraries' threads; finding them takes milliseconds."""
    found = threadpoolctl.ThreadpoolController().select(user_api="blas")
    if not found.info():
        warnings.warn(
            "NumPy's BLAS is unknown to threadpoolctl: exhaustive search ignores num_threads, and "
            "its BLAS uses as many threads as the environment sets",
            stacklevel=2,
        )
    return found
