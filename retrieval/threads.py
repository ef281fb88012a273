"""How many threads NumPy and faiss use, for the length of a `with` block.

Both keep the number for the whole process: searches that ask for different numbers must not run at
the same time.
"""

import contextlib
import ctypes
import functools
import importlib
import warnings
from collections.abc import Callable, Iterator

from sparse_embed.common.checks import check_number


@contextlib.contextmanager
def faiss_threads(count: int) -> Iterator[None]:
    """Lets faiss use `count` threads in the block, and as many as before after it."""
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
    """Lets NumPy's matrix products use `count` threads in the block, and as before after it.

    Only OpenBLAS, which NumPy's wheels hold, can be told; another library is left as it is, with a
    warning.
    """
    check_number("num_threads", count, integer=True, minimum=1)
    functions = _openblas()
    if functions is None:
        yield
        return
    read, write = functions
    before = read()
    write(count)
    try:
        yield
    finally:
        write(before)


@functools.cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """The functions of NumPy's OpenBLAS that tell and set the number of threads."""
    # Looking a name up in a library also looks into those that it was linked with.
    library = ctypes.CDLL(importlib.import_module("numpy._core._multiarray_umath").__file__)
    for name in (
        "scipy_openblas_{}_num_threads64_",
        "openblas_{}_num_threads64_",
        "openblas_{}_num_threads",
    ):
        with contextlib.suppress(AttributeError):
            return getattr(library, name.format("get")), getattr(library, name.format("set"))
    warnings.warn(
        "NumPy was not built with OpenBLAS: num_threads is not heeded by exhaustive search, which "
        "uses as many threads as the environment tells its BLAS",
        stacklevel=2,
    )
    return None
