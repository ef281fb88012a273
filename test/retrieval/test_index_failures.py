"""What a bad day does to an index: memory that runs out, threads that change it, forks, copies."""

import concurrent.futures
import copy
import multiprocessing
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import Algorithm1, SparseIndex, index_file
from sparse_embed.retrieval.index_file import IndexFileError

HERE = pathlib.Path(__file__).parent


def random_rows(rows, dims=40, density=0.2, seed=0, signed=False):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, dims)) * (rng.random((rows, dims)) < density)
    if signed:
        x *= rng.choice([-1, 1], x.shape)
    return scipy.sparse.csr_array(x.astype(np.float32))


def assert_same(found, wanted):
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, two)


FAILING = """
import copy, ctypes, sys
import numpy as np
import scipy.sparse
from sparse_embed.retrieval import Algorithm1, SparseIndex
sys.path.insert(0, sys.argv[2])
from test_index_failures import assert_same, random_rows

shim = ctypes.CDLL(sys.argv[1])
failures = {}
FAILED = object()

def found(wanted, again):
    '''A search finds this, unless it fails; then it does when it is called again.'''
    return lambda result: assert_same(again() if result is FAILED else result, wanted)

def built(queries, wanted):
    return lambda index: index is FAILED or assert_same(index.search(queries, 400), wanted)

def with_every_failure(name, call, check, prepare=lambda: None):
    '''Calls with the first allocation failing, then the second, ... until none does.

    Each time `check` gets what the call returned, or FAILED.
    '''
    for count in range(100_000):
        prepare()
        shim.arm(ctypes.c_long(count))
        try:
            result = call()
        except MemoryError:
            result = FAILED
        finally:
            left = shim.disarm()
        check(result)
        if result is not FAILED and left >= 0:
            assert count > 0, name
            failures[name] = count
            return
    raise AssertionError(name)

for signed in (False, True):
    csr, more = random_rows(300, signed=signed), random_rows(90, seed=1, signed=signed)
    queries = random_rows(7, density=0.5, seed=2, signed=signed)
    for threads in (1, 3):
        kind = f"signed={signed} threads={threads}"
        index = SparseIndex(40, block_rows=64)
        index.add(csr)
        for k, threshold in ((5, None), (200, 0.25)):
            wanted = Algorithm1(csr).search(queries, k, threshold)
            with_every_failure(
                f"search {k} {kind}",
                lambda: index.search(queries, k, threshold, threads),
                found(wanted, lambda: index.search(queries, k, threshold, threads)),
            )
        wanted = Algorithm1(csr).search(queries, 400, None)
        with_every_failure(
            f"build {kind}",
            lambda: SparseIndex.build(csr, num_threads=threads),
            built(queries, wanted),
        )

        both = scipy.sparse.vstack([csr, more], format="csr")
        more_wanted = Algorithm1(both).search(queries, 400, None)

        def fresh():
            global changed
            changed = copy.copy(index)

        def unchanged(result):
            failed = result is FAILED
            assert changed.shape[0] == (300 if failed else 390), changed.shape
            assert_same(changed.search(queries, 400), wanted if failed else more_wanted)

        with_every_failure(
            f"add {kind}", lambda: changed.add(more, num_threads=threads), unchanged, fresh
        )
        other_ids = np.random.default_rng(0).permutation(90) + 300
        order = np.argsort(np.append(np.arange(300), other_ids))
        more_wanted = Algorithm1(both[order]).search(queries, 400, None)
        with_every_failure(
            f"add ids {kind}", lambda: changed.add(more, other_ids, threads), unchanged, fresh
        )
        other = SparseIndex(40, block_rows=64)
        other.add(more, other_ids)
        with_every_failure(f"merge {kind}", lambda: changed.merge(other, threads), unchanged, fresh)

        def fresh_with_gaps():
            fresh()
            changed.remove(np.arange(0, 300, 3))

        def compacted(result):
            assert changed.shape[0] == (300 if result is FAILED else 200), changed.shape
            assert_same(changed.search(queries, 400), gaps_wanted)

        fresh_with_gaps()
        gaps_wanted = changed.search(queries, 400)
        with_every_failure(
            f"compact {kind}", lambda: changed.compact(threads), compacted, fresh_with_gaps
        )
        changed.add(more, other_ids)
        for some in (np.arange(3), np.arange(300)):
            for call in (changed.search, changed.range_search):
                arguments = (queries, 30, 0.25) if call == changed.search else (queries, 0.25)
                filtered_wanted = call(*arguments, allowed=some)
                with_every_failure(
                    f"{call.__name__} {len(some)} {kind}",
                    lambda: call(*arguments, num_threads=threads, allowed=some),
                    found(filtered_wanted, lambda: call(*arguments, allowed=some)),
                )
    def same_rows(rows):
        rows = changed.reconstruct(other_ids) if rows is FAILED else rows
        assert_same([rows.toarray()], [more.toarray()])
    with_every_failure(
        f"reconstruct signed={signed}", lambda: changed.reconstruct(other_ids), same_rows
    )
    fresh()

    left_wanted = Algorithm1(csr[np.setdiff1d(np.arange(300), [3, 77])]).search(queries, 400, None)
    def kept(result):
        failed = result is FAILED
        assert len(changed) == (300 if failed else 298)
        scores, ids = changed.search(queries, 400)
        assert not (np.isin(ids, [3, 77]).any() and not failed)
        assert_same([scores], [(wanted if failed else left_wanted)[0]])
    with_every_failure(f"remove signed={signed}", lambda: changed.remove([3, 77]), kept, fresh)
    path = sys.argv[3]
    index.merge(other)
    now = index.search(queries, 400)
    index.save(path)
    def whole_file(loaded):
        loaded = SparseIndex.load(path) if loaded is FAILED else loaded
        assert_same(loaded.search(queries, 400), now)
    for mmap in (True, False):
        with_every_failure(
            f"load mmap={mmap} signed={signed}",
            lambda: SparseIndex.load(path, mmap=mmap),
            whole_file,
        )
rng = np.random.default_rng(0)
csr, queries = random_rows(1100, 5, 1.0), random_rows(3, 5, 1.0, seed=1)
wanted = Algorithm1(csr).search(queries, 5, 0.25)
index = SparseIndex(5, block_rows=1024)
index.add(csr)
index._way = "cells"
assert index.nbytes_by_part["cells"] > 0
everything = Algorithm1(csr).search(queries, 400)
with_every_failure("cells", lambda: SparseIndex.build(csr), built(queries, everything))
for threads in (1, 3):
    with_every_failure(
        f"search cells {threads}",
        lambda: copy.copy(index).search(queries, 5, 0.25, threads),
        found(wanted, lambda: index.search(queries, 5, 0.25)),
    )
print(sum(failures.values()), failures)
"""


def test_every_allocation_may_fail(tmp_path):
    """An exception each time; then the same index gives exact results, or is unchanged."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if not compiler:
        pytest.skip("needs a C++ compiler for the allocator that fails")
    shim = tmp_path / "failing_new.so"
    source = HERE / "failing_new.cc"
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", source, "-o", shim], check=True)
    done = subprocess.run(
        [sys.executable, "-c", FAILING, shim, HERE, tmp_path / "x.index"],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_PRELOAD": f"{shim} {os.environ.get('LD_PRELOAD', '')}"},
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_rows_may_change_while_others_search_and_save(tmp_path):
    """Every result is that of the index at some moment: rows that were added before it began."""
    base, parts = random_rows(500), [random_rows(100, seed=s) for s in range(1, 21)]
    queries = random_rows(5, density=0.5, seed=99)
    states = [base]
    for part in parts:
        states.append(scipy.sparse.vstack([states[-1], part], format="csr"))
    wanted = [Algorithm1(state).search(queries, 10) for state in states]
    index = SparseIndex(40, block_rows=64)
    index.add(base)
    stop, searches = threading.Event(), []

    def search():
        latest = 0
        while not stop.is_set():
            found = index.search(queries, 10, num_threads=2)
            fits = [
                number
                for number, want in enumerate(wanted)
                if all(np.array_equal(a, b) for a, b in zip(found, want, strict=True))
            ]
            assert fits, "the rows of no moment"
            assert fits[-1] >= latest, "older rows than those of the search before"
            latest = max(latest, fits[0])
            searches.append(1)

    def save(number):
        while not stop.is_set():
            index.save(tmp_path / f"{number}.index")
            loaded = SparseIndex.load(tmp_path / f"{number}.index")
            fits = [state for state in states if state.shape[0] == loaded.shape[0]]
            assert_same([loaded.reconstruct(loaded.ids).toarray()], [fits[0].toarray()])

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        others = [pool.submit(search) for _ in range(3)]
        others += [pool.submit(save, number) for number in range(2)]
        try:
            for number, part in enumerate(parts):
                while len(searches) < 3 * number and not any(other.done() for other in others):
                    pass
                index.add(part, num_threads=2)
        finally:
            stop.set()
        for other in others:
            other.result()
    assert_same(index.search(queries, 10), wanted[-1])


@pytest.mark.parametrize(
    "pieces",
    [
        lambda state: state.blocks,
        lambda state: state.id_arrays,
        lambda state: list(index_file.parts(state)),  # which `b"".join` of a copy makes of them
    ],
)
def test_views_of_a_snapshot_keep_its_memory(pieces):
    index = SparseIndex.build(random_rows(500), ids=np.arange(500)[::-1])
    views = pieces(index._index.snapshot())
    content = [bytes(view) for view in views]
    index.remove(np.arange(0, 500, 2))
    index.compact()  # lets go of the memory
    np.full(2**20, 255, np.uint8)
    assert [bytes(view) for view in views] == content


def test_rows_may_be_added_and_removed_by_several_threads():
    index = SparseIndex(40, block_rows=64)
    parts = [random_rows(37, seed=s) for s in range(16)]

    def work(part):
        ids = index.add(part)
        assert index.remove(ids[::2]) == 19
        return ids

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        given = list(pool.map(work, parts))
    assert sorted(np.concatenate(given)) == list(range(16 * 37))
    assert len(index) == 16 * 18
    kept = np.concatenate([ids[1::2] for ids in given])
    rows = scipy.sparse.vstack([part[1::2] for part in parts], format="csr")
    assert_same([index.reconstruct(kept).toarray()], [rows.toarray()])
    queries, order = random_rows(9, density=0.5, seed=99), np.argsort(kept)
    scores, found = Algorithm1(rows[order]).search(queries, 40)
    assert_same(index.search(queries, 40), (scores, kept[order][found]))


@pytest.mark.parametrize("mmap", [True, False])
def test_a_loaded_index_may_be_compacted_while_others_search(mmap, tmp_path):
    """The memory of the file is let go of by the last search that uses it, on any thread."""
    csr, queries = random_rows(2000), random_rows(5, density=0.5, seed=99)
    index = SparseIndex(40, block_rows=64)
    index.add(csr, ids=np.arange(2000)[::-1])
    index.remove(np.arange(0, 2000, 3))
    wanted = index.search(queries, 50)
    index.save(tmp_path / "x.index")
    for _ in range(10):
        loaded = SparseIndex.load(tmp_path / "x.index", mmap=mmap)
        stop = threading.Event()

        def search(loaded=loaded, stop=stop):
            while True:
                assert_same(loaded.search(queries, 50, num_threads=2), wanted)
                if stop.is_set():
                    return

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            searches = [pool.submit(search) for _ in range(3)]
            try:
                loaded.compact(num_threads=2)
            finally:
                stop.set()
            for done in searches:
                done.result()
        assert loaded.shape[0] == len(index)
        assert_same(loaded.search(queries, 50), wanted)


def child(index, queries, pipe):
    index.add(random_rows(10, seed=5))
    pipe.send((index.shape[0], *index.search(queries, 5)))


def test_a_fork_while_others_search_leaves_a_working_index():
    csr, queries = random_rows(3000), random_rows(50, density=0.5, seed=3)
    index = SparseIndex(40, block_rows=64)
    index.add(csr)
    stop = threading.Event()

    def busy(change):
        while not stop.is_set():
            index.add(random_rows(1)) if change else index.search(queries, 5, num_threads=2)

    threads = [threading.Thread(target=busy, args=(n == 0,)) for n in range(3)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(20):
            here, there = context.Pipe()
            process = context.Process(target=child, args=(index, queries, there))
            process.start()
            assert here.poll(60), "the child does not answer"
            rows, *found = here.recv()
            process.join()
            assert process.exitcode == 0
            added = [random_rows(1)] * (rows - 3010)
            held = scipy.sparse.vstack([csr, *added, random_rows(10, seed=5)], format="csr")
            assert_same(found, Algorithm1(held).search(queries, 5))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


FORKING = """
import os, threading
import numpy as np
from sparse_embed.retrieval import SparseIndex

rows = np.eye(5, dtype=np.float32)
indexes = [SparseIndex.build(rows) for _ in range(3)]
failed = []

def fork():
    for _ in range(20):
        SparseIndex(5)  # comes and goes while others fork
        pid = os.fork()
        if pid == 0:
            found = [index.search(rows, 1)[1][:, 0].tolist() for index in indexes]
            indexes[0].add(rows)
            os._exit(found != [[0, 1, 2, 3, 4]] * 3 or len(indexes[0]) != 10)
        failed.append(os.waitpid(pid, 0)[1])

threads = [threading.Thread(target=fork) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(failed), sum(failed))
"""


def test_threads_may_fork_at_once():
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["80", "0"]


def pickled(index):
    return pickle.loads(pickle.dumps(index))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_copies_and_pickles_are_indexes_of_their_own(duplicate, tmp_path):
    csr, queries = random_rows(200, signed=True), random_rows(4, density=0.5, seed=1)
    index = SparseIndex(40, block_rows=64)
    index.add(csr)
    index.remove([5, 9])
    index.kernels = "portable"
    for source in (index, saved_and_loaded(index, tmp_path / "x.index")):
        other = duplicate(source)
        assert other.shape == index.shape
        assert len(other) == len(index) == 198
        assert_same(other.search(queries, 20), index.search(queries, 20))
        other.add(csr)
        assert index.shape[0] == 200
    assert duplicate(index).kernels == "portable"


def saved_and_loaded(index, path):
    index.save(path)
    return SparseIndex.load(path)


def test_a_mapped_file_that_was_changed_in_place_is_refused(tmp_path):
    index = SparseIndex.build(random_rows(300))
    path, queries = tmp_path / "x.index", random_rows(2, seed=1)
    loaded, read = saved_and_loaded(index, path), SparseIndex.load(path, mmap=False)
    wanted = loaded.search(queries, 3)
    index.save(path)  # another file of the same name: harmless
    assert_same(loaded.search(queries, 3), wanted)
    mapped = SparseIndex.load(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(IndexFileError, match=r"x\.index: the file has been changed in place"):
        mapped.search(queries, 3)
    path.write_bytes(content)
    assert_same(read.search(queries, 3), wanted)


@pytest.mark.parametrize("k", [301, 5000])
def test_more_results_than_rows_are_filled_up(k):
    csr, queries = random_rows(300), random_rows(3, seed=1)
    scores, ids = SparseIndex.build(csr).search(queries, k)
    assert scores.shape == ids.shape == (3, k)
    assert_same((scores[:, :300], ids[:, :300]), Algorithm1(csr).search(queries, 300))
    assert (ids[:, 300:] == -1).all()
    assert (scores[:, 300:] == -np.inf).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 2**64}, "k=18446744073709551616: expected an integer"),
        ({"k": 2**32}, "k=4294967296: expected an integer"),
        ({"num_threads": 10**6}, "num_threads=1000000: expected an integer"),
    ],
)
def test_numbers_beyond_reason_are_named(arguments, message):
    index = SparseIndex.build(random_rows(10))
    with pytest.raises(ValueError, match=message):
        index.search(random_rows(1), **arguments)


def test_block_rows_must_be_an_integer():
    with pytest.raises(ValueError, match=r"block_rows=64\.0: expected an integer"):
        SparseIndex(5, block_rows=64.0)


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.toarray().astype(np.float16),
        lambda x: x.toarray().astype(">f4"),
        lambda x: x.toarray().tolist(),
        lambda x: scipy.sparse.coo_array(x.astype(np.float64)),
    ],
)
def test_other_kinds_of_numbers_are_converted(convert):
    csr = random_rows(30)
    csr.data = csr.data.astype(np.float16).astype(np.float32)
    wanted = SparseIndex.build(csr).search(csr, 3)
    assert_same(SparseIndex.build(convert(csr)).search(convert(csr), 3), wanted)
