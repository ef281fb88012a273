import subprocess
import sys

import pytest

from sparse_embed.retrieval import threads


def test_numpy_gets_as_many_threads_as_are_asked_for():
    functions = threads._openblas()
    if functions is None:
        pytest.skip("NumPy was built without OpenBLAS")
    read, _ = functions
    before = read()
    with pytest.raises(KeyError), threads.blas_threads(1):
        assert read() == 1
        raise KeyError
    assert read() == before
    with threads.blas_threads(2):
        assert read() == 2
    assert read() == before


def test_another_blas_is_left_alone_with_a_warning(monkeypatch):
    monkeypatch.setattr(threads.ctypes, "CDLL", lambda path: object())
    threads._openblas.cache_clear()
    try:
        with pytest.warns(UserWarning, match="num_threads is not heeded"), threads.blas_threads(1):
            pass
    finally:
        threads._openblas.cache_clear()


def test_faiss_is_imported_only_by_what_needs_it():
    code = (
        "import sys, numpy; from sparse_embed import retrieval\n"
        "x = numpy.eye(8, dtype='float32')\n"
        "retrieval.PCASearch(x, 2).search(x); retrieval.SDHSearch(x).search(x)\n"
        "assert not {'faiss', 'tensorflow', 'keras', 'ortools'} & set(sys.modules)\n"
        "retrieval.LSHSearch(x, 8); assert 'faiss' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
