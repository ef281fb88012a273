import subprocess
import sys

import pytest
import threadpoolctl

from sparse_embed.retrieval import threads


def blas_counts():
    found = threadpoolctl.threadpool_info()
    return [library["num_threads"] for library in found if library["user_api"] == "blas"]


def test_numpy_gets_as_many_threads_as_are_asked_for():
    threads._blas.cache_clear()  # other libraries may have been loaded since
    before = blas_counts()
    if not before:
        pytest.skip("threadpoolctl does not know NumPy's BLAS")
    with pytest.raises(KeyError), threads.blas_threads(1):
        assert blas_counts() == [1] * len(before)
        raise KeyError
    assert blas_counts() == before
    with threads.blas_threads(2):
        assert blas_counts() == [2] * len(before)
    assert blas_counts() == before


@pytest.mark.parametrize("limit", [threads.blas_threads, threads.faiss_threads])
@pytest.mark.parametrize("count", [0, 1.5])
def test_bad_number_of_threads_is_named(limit, count):
    with (
        pytest.raises(ValueError, match=rf"num_threads={count}: expected an integer >= 1"),
        limit(count),
    ):
        pass


def test_another_blas_is_left_alone_with_a_warning(monkeypatch):
    nothing = threadpoolctl.ThreadpoolController().select(user_api="none")
    monkeypatch.setattr(
        threads.threadpoolctl.ThreadpoolController, "select", lambda *a, **k: nothing
    )
    threads._blas.cache_clear()
    try:
        with (
            pytest.warns(UserWarning, match="exhaustive search ignores num_threads"),
            threads.blas_threads(1),
        ):
            pass
    finally:
        threads._blas.cache_clear()


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
