"""What other programs may do to an index file while it is mapped: cut it, or write over it."""

import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from sparse_embed.retrieval import SparseIndex

HERE = pathlib.Path(__file__).parent
BEGIN = """
import copy, faulthandler, mmap, os, pathlib, pickle, sys, threading
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_index_failures import assert_same, random_rows
from sparse_embed.retrieval import SparseIndex
from sparse_embed.retrieval.index_file import IndexFileError

path = pathlib.Path(sys.argv[2]) / "x.index"
csr, queries = random_rows(3000), random_rows(5, density=0.5, seed=1)
index = SparseIndex(40, block_rows=1024)
index.add(csr, ids=np.random.default_rng(0).permutation(3000))
index.remove([5, 9])
index.save(path)
content = path.read_bytes()

def opened():
    path.write_bytes(content)
    return SparseIndex.load(path)
"""


def run(script, folder, timeout=300):
    """Runs a script that may die in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", BEGIN + script, HERE, folder],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


CALLS = """
def search_cells(loaded):
    loaded._way = "cells"
    loaded.search(queries, 20)

calls = {
    "search": lambda loaded: loaded.search(queries, 20),
    "search in cells": search_cells,
    "search of few": lambda loaded: loaded.search(queries, 20, allowed=[1, 2, 3]),
    "range_search": lambda loaded: loaded.range_search(queries, 0.1),
    "tune": lambda loaded: loaded.tune(queries),
    "reconstruct": lambda loaded: loaded.reconstruct(index.ids),
    "add": lambda loaded: loaded.add(csr[:10]),
    "remove": lambda loaded: loaded.remove([100, 200, 2000]),
    "compact": lambda loaded: loaded.compact(),
    "merge": lambda loaded: loaded.merge(SparseIndex.build(csr[:10], ids=np.arange(10) + 9000)),
    "merge of it": lambda loaded: target.merge(loaded),
    "save": lambda loaded: loaded.save(saved),
    "copy": copy.copy,
    "pickle": pickle.dumps,
}
target = SparseIndex.build(csr[:10], ids=np.arange(10) + 9000)
saved = path.with_name("saved.index")
target.save(saved)
assert index.nbytes_by_part["cells"] > 0
for size in (0, 100, 4096, len(content) // 2, len(content) - 1, len(content) + 1):
    for name, call in calls.items():
        for put_back in (False, True):
            loaded = opened()
            status = path.stat()
            os.truncate(path, size)
            for _ in range(2):
                try:
                    call(loaded)
                    raise AssertionError(f"{name} of {size} bytes: no exception")
                except IndexFileError as error:
                    message = str(error)
                assert message.startswith(f"{path}: the file has been changed in place"), message
                if put_back:  # what the index read meanwhile stays wrong
                    path.write_bytes(content)
                    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            assert loaded.shape == index.shape and len(loaded) == len(index)
            assert len(target) == len(SparseIndex.load(saved)) == 10
            print(name)
"""


def test_every_call_on_a_file_that_was_cut_raises_and_changes_nothing(tmp_path):
    done = run(CALLS, tmp_path)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 6 * 14 * 2


DURING = """
wanted = index.search(queries, 20)
rng = np.random.default_rng(2)
other = SparseIndex(40, block_rows=64)
other.add(random_rows(3000, density=0.5, seed=3))
other.save(path)
others = [path.read_bytes()[: len(content)], rng.bytes(len(content)), b"\\xff" * len(content), b""]
outcomes = {True: 0, False: 0}
wrong = []

def search(loaded, way):
    try:
        loaded._way = way
        while True:
            found = loaded.search(queries, 20, num_threads=2)
            outcomes[True] += 1
            if not all(np.array_equal(a, b) for a, b in zip(found, wanted)):
                wrong.append(found)
                return
    except IndexFileError:
        outcomes[False] += 1

def rebuild(loaded):
    try:
        while True:
            copy.copy(loaded).compact()
            SparseIndex(40).merge(loaded)
            loaded.reconstruct([1, 2, 3])
    except IndexFileError:
        outcomes[False] += 1

for turn in range(40):
    loaded = opened()
    ways = ("cells", "accumulate")
    threads = [threading.Thread(target=search, args=(loaded, way)) for way in ways]
    threads.append(threading.Thread(target=rebuild, args=(loaded,)))
    before = outcomes[True]
    for thread in threads:
        thread.start()
    while outcomes[True] == before:
        pass
    path.write_bytes(others[turn % 4])  # cut to nothing first
    for thread in threads:
        thread.join()
assert not wrong
print(outcomes[False])
"""


def test_a_search_while_the_file_is_overwritten_is_right_or_raises(tmp_path):
    done = run(DURING, tmp_path)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert done.stdout.split() == [str(3 * 40)]


FOREIGN = """
{first}
loaded = opened()
{second}
os.truncate(path, 0)
try:
    loaded.search(queries, 5)
except IndexFileError:
    print("refused", flush=True)
other = pathlib.Path(sys.argv[2]) / "other"
other.write_bytes(bytes(10_000))
with open(other, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 10_000, access=mmap.ACCESS_READ)
os.truncate(other, 0)
{end}
"""
FATAL = "Fatal Python error: Bus error"


@pytest.mark.parametrize("end", ["mapped[0]", "os.kill(os.getpid(), 7)"])
@pytest.mark.parametrize("place", ["first", "second", "neither"])
def test_other_faults_end_the_process_as_ever(tmp_path, place, end):
    handler = {name: "faulthandler.enable()" * (name == place) for name in ("first", "second")}
    end = end.replace("7", str(int(signal.SIGBUS)))
    done = run(FOREIGN.format(**handler, end=end), tmp_path, timeout=60)
    assert done.returncode == -signal.SIGBUS
    assert done.stdout == "refused\n"
    assert done.stderr.count(FATAL) == (place != "neither")


def test_a_file_that_shrinks_while_it_is_opened_is_refused(tmp_path):
    """The checks of an index file read what may be gone."""
    script = """
import zlib
from sparse_embed.retrieval import index_file

def cut(data, crc32=zlib.crc32):
    os.truncate(path, {size})
    return crc32(data)

zlib.crc32 = cut
for verify in (False, True):
    path.write_bytes(content)
    try:
        SparseIndex.load(path, verify=verify)
    except IndexFileError:
        print("refused")
"""
    for size in (0, 5000):
        done = run(script.format(size=size), tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.split() == ["refused"] * 2


def test_a_file_that_is_replaced_or_removed_stays_as_it_was(tmp_path):
    rows = np.eye(40, dtype=np.float32)
    path = tmp_path / "x.index"
    SparseIndex.build(rows).save(path)
    loaded = SparseIndex.load(path)
    SparseIndex.build(2 * rows).save(path)
    np.testing.assert_array_equal(loaded.search(rows, 1)[0], 1)
    path.unlink()
    np.testing.assert_array_equal(loaded.search(rows, 1)[0], 1)
    loaded.save(path)
    assert len(SparseIndex.load(path)) == 40
