"""Building an index from batches: the same index, in the memory of the index and one batch."""

import itertools
import os
import pathlib
import subprocess
import sys
import weakref

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import SparseIndex
from sparse_embed.retrieval.batches import read, whole_blocks

DIMS = 24


def random_rows(rows, seed=0):
    rng = np.random.default_rng(seed)
    return scipy.sparse.random_array(
        (rows, DIMS), density=0.2, rng=rng, dtype=np.float32, format="csr"
    )


def cut(csr, sizes):
    ends = np.cumsum([0, *sizes])
    assert ends[-1] == csr.shape[0]
    return [csr[begin:end] for begin, end in itertools.pairwise(ends)]


def blocks_of(index):
    return [bytes(block) for block in index._index.snapshot().blocks]


SIZES = [[100_000], [1, 99_999], [0, 40_000, 0, 60_000], [33_000] * 3 + [1000], [65_536, 34_464]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", [iter, list, tuple])
def test_batches_give_the_same_index(sizes, kind):
    csr = random_rows(100_000)
    whole = SparseIndex.build(csr)
    built = SparseIndex.build(kind(cut(csr, sizes)))
    assert built.shape == whole.shape
    if sizes[0] > 1000:  # else the size of blocks is chosen for a first batch of one row or none
        assert blocks_of(built) == blocks_of(whole)
    for one, two in zip(built.search(csr[:9], 50), whole.search(csr[:9], 50), strict=True):
        np.testing.assert_array_equal(one, two)


def test_many_tiny_batches_and_ids():
    csr = random_rows(700)
    ids = np.random.default_rng(0).permutation(10**6)[:700]
    whole = SparseIndex.build(csr, ids)
    built = SparseIndex.build((csr[[i]], ids[[i]]) for i in range(700))
    assert (built.ids == whole.ids).all()
    for one, two in zip(built.search(csr, 9), whole.search(csr, 9), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("block_rows", [64, 128])
def test_pieces_fill_blocks_and_keep_their_rows(block_rows):
    rng = np.random.default_rng(0)
    for _ in range(30):
        sizes = rng.choice([0, 1, 5, 63, 64, 65, 200, 1000], rng.integers(1, 9)).tolist()
        csr = random_rows(sum(sizes))
        ids = np.arange(sum(sizes)) * 3
        pairs = zip(cut(csr, sizes), np.split(ids, np.cumsum(sizes)[:-1]), strict=True)
        pieces = list(whole_blocks(read(pairs), block_rows))
        assert all(len(piece) % block_rows == 0 for piece in pieces[:-1])
        assert all(len(piece) > 0 for piece in pieces)
        arrays = [[np.asarray(array) for array in piece.rows.arrays] for piece in pieces]
        rows = [
            scipy.sparse.csr_array((values, columns, indptr), shape=piece.rows.shape)
            for piece, (indptr, columns, values) in zip(pieces, arrays, strict=True)
        ]
        if pieces:
            assert (scipy.sparse.vstack(rows) != csr).nnz == 0
            np.testing.assert_array_equal(np.concatenate([piece.ids for piece in pieces]), ids)


def test_large_batches_come_in_pieces_of_a_bounded_size():
    csr = scipy.sparse.csr_array((600_001, 3), dtype=np.float32)
    pieces = list(whole_blocks(read([csr]), 8192))
    assert [len(piece) for piece in pieces] == [262_144, 262_144, 73_728, 1985]


def test_one_batch_at_a_time_is_alive():
    living = []

    def batches():
        for seed in range(6):
            assert [one() for one in living if one() is not None] == []
            data = random_rows(40_000, seed).data.view()
            csr = random_rows(40_000, seed)
            csr.data = data
            living.append(weakref.ref(data))
            yield csr
            del csr, data

    assert SparseIndex.build(batches()).shape == (240_000, DIMS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SparseIndex.build(iter([])), "csr yields nothing"),
        (lambda: SparseIndex.build(iter([np.eye(2), np.eye(3)])), "batch 1 of csr has 3 columns"),
        (lambda: SparseIndex.build(iter([np.ones(2)])), "batch 0 of csr has 1 dimension"),
        (lambda: SparseIndex.build([np.eye(2)], ids=[0, 1]), "expected pairs"),
        (lambda: SparseIndex.build([(np.eye(2), [0])]), r"batch 0 of csr: ids has shape \(1,\)"),
        (
            lambda: SparseIndex.build([(np.eye(2), [0, 1]), np.eye(2)]),
            "batch 1 of csr comes without ids, unlike the first",
        ),
        (
            lambda: SparseIndex.build([np.eye(2), (np.eye(2), [0, 1])]),
            "batch 1 of csr comes with ids, unlike the first",
        ),
        (lambda: SparseIndex.build([(np.eye(2), [3, 3])]), "ids holds 3 twice"),
        (lambda: SparseIndex.build(np.eye(2), 2), r"ids has shape \(\): expected \(2,\)"),
    ],
)
def test_bad_batches_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_bar_is_drawn_if_it_is_wanted(capsys):
    csr = random_rows(1000)
    for build in (csr, iter(cut(csr, [400, 600]))):
        SparseIndex.build(build, progress=True)
        assert "1000" in capsys.readouterr().err.replace("1.00k", "1000")
    SparseIndex.build(csr)
    assert capsys.readouterr().err == ""


MEMORY = """
import numpy as np, scipy.sparse, sys
from sparse_embed.retrieval import SparseIndex

def peak():
    with open("/proc/self/status") as file:
        return {l.split(":")[0]: l.split(":")[1] for l in file}["VmHWM"].split()[0]

def batches(count, rows, row_nonzeros=16, dims=512):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        columns = np.sort(rng.integers(dims // row_nonzeros, size=(rows, row_nonzeros)) + np.arange(
            0, dims, dims // row_nonzeros)).astype(np.int32)
        values = rng.random(columns.size, np.float32)
        yield scipy.sparse.csr_array(
            (values, columns.ravel(), np.arange(0, columns.size + 1, row_nonzeros)),
            shape=(rows, dims))

SparseIndex.build(batches(1, 1000))
before = int(peak())
index = SparseIndex.build(batches(int(sys.argv[1]), int(sys.argv[2])))
print(index.nbytes, 1024 * (int(peak()) - before))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_memory_is_that_of_the_index_and_one_batch(tmp_path):
    script = pathlib.Path(tmp_path / "memory.py")
    script.write_text(MEMORY)
    count, rows = 40, 5000
    done = subprocess.run(
        [sys.executable, script, str(count), str(rows)], capture_output=True, text=True, check=True
    )
    index, peak = map(int, done.stdout.split())
    batch = rows * 16 * 8
    # A batch is made of temporary arrays that take several times its size.
    assert peak < index + 12 * batch + (8 << 20), (index, peak)
