import os
import signal
import subprocess
import sys
import threading

import pytest
import threadpoolctl

from sparse_embed.retrieval import threads


def blas_counts():
    """The numbers of threads that the whole process has; those of OpenMP are each thread's own."""
    found = threadpoolctl.threadpool_info()
    found = [library for library in found if library["user_api"] == "blas"]
    return [lib["num_threads"] for lib in found if lib.get("threading_layer") != "openmp"]


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
        assert blas_counts() == counts_with(2)
    assert blas_counts() == before


class Block(threading.Thread):
    """A thread that is in a block of `blas_threads` until the `with` block of ours ends."""

    def __init__(self, count):
        super().__init__(daemon=True)
        self.count, self.inside, self.may_leave = count, threading.Event(), threading.Event()

    def run(self):
        with threads.blas_threads(self.count):
            self.inside.set()
            self.may_leave.wait(60)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.may_leave.set()
        self.join()


def counts_with(count):
    """What `count` makes of each library: some have been built for no more threads than cores."""
    with threadpoolctl.threadpool_limits(count, "blas"):
        return blas_counts()


def test_threads_that_want_different_numbers_take_turns():
    threads._blas.cache_clear()
    before = blas_counts()
    if not before:
        pytest.skip("threadpoolctl does not know NumPy's BLAS")
    one, three = counts_with(1), counts_with(3)
    with Block(3) as first:
        assert first.inside.wait(60)
        with Block(1) as second:
            second.inside.wait(0.2)  # which it should not be yet
            assert blas_counts() == three
            first.may_leave.set()
            assert second.inside.wait(60)
            assert blas_counts() == one
    assert blas_counts() == before


def test_a_fork_does_not_wait_for_the_turn_of_a_thread_that_it_has_not():
    with Block(1) as block:
        assert block.inside.wait(60)
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            with threads.blas_threads(1):
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0


def test_faiss_has_a_number_for_each_thread():
    faiss = pytest.importorskip("faiss")
    before = faiss.omp_get_max_threads()
    seen = []

    def work():
        seen.append(faiss.omp_get_max_threads())
        with threads.faiss_threads(7):
            seen.append(faiss.omp_get_max_threads())

    with threads.faiss_threads(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert faiss.omp_get_max_threads() == 5
    assert seen == [before, 7]
    assert faiss.omp_get_max_threads() == before


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
