"""Threads do at once all that an index can; every answer is that of a moment during the call.

Values are small whole numbers, so that NumPy's products are exact, and many scores tie. STRESS, a
number in the environment, makes the test that many times as long.
"""

import concurrent.futures
import copy
import itertools
import os
import pickle
import signal
import sys
import threading
import traceback

import numpy as np
import pytest

from sparse_embed.retrieval import SparseIndex
from sparse_embed.retrieval.index import available_kernels

STRESS = float(os.environ.get("STRESS", "1"))
DIMS, QUERIES, POOL = 24, 3, 300
WRITERS, READERS, READS = 2, 4, 120

rng = np.random.default_rng(0)
ROWS = (rng.integers(-2, 9, (POOL, DIMS)) * (rng.random((POOL, DIMS)) < 0.4)).astype(np.float32)
ASKED = (rng.integers(-1, 5, (QUERIES, DIMS)) * (rng.random((QUERIES, DIMS)) < 0.5)).astype(
    np.float32
)
SCORES = ASKED @ ROWS.T
POSTINGS = (ASKED != 0).astype(np.int64) @ (ROWS != 0).T
NONE = -1  # instead of the row of an id that no row has

# What the sanitizers themselves cannot do: AddressSanitizer's locks stay closed in a child, and
# ThreadSanitizer takes its threads for those of the parent whose memory they use again.
SANITIZER = os.environ.get("LD_PRELOAD", "")
CHILD_THREADS = 1 if "libtsan" in SANITIZER else 2


class History:
    """Which rows the ids of one writer had before and after each of its calls.

    Writer w owns each WRITERS-th id, from w on; a version holds their rows' places in ROWS.
    """

    def __init__(self, version):
        self.versions, self.done = [version], 0

    def change(self, after, call, *arguments):
        self.versions.append(after)  # from now on it may be seen
        result = call(*arguments)
        self.done = len(self.versions) - 1  # from now on it must be
        return result


class World:
    """An index, and what it may hold."""

    def __init__(self, block_rows, ids, folder, mapped):
        self.ids, self.folder, self.stop = ids, folder, threading.Event()
        self.crowded = 0  # calls during which the index was changed
        rows = np.random.default_rng(1).integers(0, POOL, ids)
        index = SparseIndex(DIMS, block_rows)
        index.add(ROWS[rows], np.random.default_rng(2).permutation(ids))
        order = np.random.default_rng(2).permutation(ids)
        rows[order] = rows.copy()
        if mapped:
            index.save(folder / "begin.index")
            index = SparseIndex.load(folder / "begin.index")
        self.index = index
        self.histories = [History(rows[w::WRITERS]) for w in range(WRITERS)]

    def during(self, call, *arguments, **named):
        """Calls; returns the result, and for each writer its versions meanwhile."""
        first = [history.done for history in self.histories]
        result = call(*arguments, **named)
        pairs = zip(self.histories, first, strict=True)
        versions = [history.versions[begin:] for history, begin in pairs]
        self.crowded += any(len(some) > 1 for some in versions)
        return result, versions

    def seen_by(self, rng):
        """The same index, searched in one of all ways."""
        seen = SparseIndex.__new__(SparseIndex)
        seen._open(self.index._index)
        seen._way = str(rng.choice(["cheapest", "cells", "accumulate"]))
        seen.kernels = str(rng.choice(available_kernels()))
        return seen


def joined(versions):
    """The rows of all ids from those of each writer's."""
    whole = np.empty(sum(map(len, versions)), np.int64)
    for writer, version in enumerate(versions):
        whole[writer::WRITERS] = version
    return whole


def right_rows(version, visible, threshold):
    """Scores and ids of each query, best first, among the rows that are visible."""
    ids = np.flatnonzero((version != NONE) & visible)
    for scores in SCORES[:, version[ids]]:
        order = np.lexsort((ids, -scores))
        order = order[scores[order] >= threshold]
        yield scores[order], ids[order]


def right_answer(version, k, visible, threshold):
    scores = np.full((QUERIES, k), -np.inf, np.float32)
    ids = np.full((QUERIES, k), -1)
    for q, (best, of) in enumerate(right_rows(version, visible, threshold)):
        scores[q, : len(best[:k])], ids[q, : len(of[:k])] = best[:k], of[:k]
    return scores, ids


def right_ranges(version, visible, threshold):
    found = list(right_rows(version, visible, threshold))
    offsets = np.cumsum([0, *(len(ids) for _, ids in found)])
    return offsets, *(np.concatenate(parts) for parts in zip(*found, strict=True))


def same(found, right):
    return all(map(np.array_equal, found, right))


def fitting(versions, queries, scores, ids):
    """For each writer, its versions that have these rows, each once."""
    kept = []
    for writer, some in enumerate(versions):
        own = (ids >= 0) & (ids % WRITERS == writer)
        at, q, score = ids[own] // WRITERS, queries[own], scores[own]
        fits = {
            version.tobytes(): version
            for version in some
            if ((version[at] != NONE) & (SCORES[q, version[at]] == score)).all()
        }
        kept.append(list(fits.values()))
    return kept


def any_moment(versions, fits):
    return any(fits(joined(parts)) for parts in itertools.product(*versions))


def some_visible(world, rng):
    """Arguments of a filter, and the ids that it leaves."""
    chosen = rng.random(world.ids) < rng.choice([0.01, 0.3, 0.95])
    listed = rng.permutation(np.flatnonzero(chosen))
    return [
        ({}, np.ones(world.ids, bool)),
        ({"allowed": listed}, chosen),
        ({"allowed": chosen}, chosen),
        ({"forbidden": listed}, ~chosen),
        ({"forbidden": chosen}, ~chosen),
    ][rng.integers(5)]


def check_search(world, rng):
    index, k = world.seen_by(rng), int(rng.choice([1, 7, 50, world.ids + 9]))
    threshold = rng.choice([None, 1.0, 30.0, -5.0])
    how, visible = some_visible(world, rng)
    threads = int(rng.integers(1, 5))
    (scores, ids), versions = world.during(index.search, ASKED, k, threshold, threads, **how)
    queries = np.arange(QUERIES)[:, None] + np.zeros_like(ids)
    arguments = k, visible, -np.inf if threshold is None else threshold
    some = fitting(versions, queries, scores, ids)
    assert any_moment(some, lambda version: same((scores, ids), right_answer(version, *arguments)))


def check_effort(world, rng):
    """With less effort rows may be missed; those that are found are right, and of one moment."""
    index, effort = world.seen_by(rng), rng.choice([0.2, 0.6, 0.9])
    how, visible = some_visible(world, rng)
    threads = int(rng.integers(1, 5))
    (scores, ids), versions = world.during(
        index.search, ASKED, 9, 1.0, threads, **how, effort=effort
    )
    queries = np.arange(QUERIES)[:, None] + np.zeros_like(ids)
    assert (scores[ids >= 0] >= 1).all()
    assert visible[ids[ids >= 0]].all()
    assert all((np.diff(row[row > 0]) <= 0).all() for row in scores)
    assert all(len({*row[row >= 0]}) == (row >= 0).sum() for row in ids)
    assert all(fitting(versions, queries, scores, ids))


def check_range_search(world, rng):
    index, threshold = world.seen_by(rng), float(rng.choice([-5.0, 1.0, 30.0]))
    how, visible = some_visible(world, rng)
    threads = int(rng.integers(1, 5))
    found, versions = world.during(index.range_search, ASKED, threshold, threads, **how)
    queries = np.repeat(np.arange(QUERIES), np.diff(found[0]))
    some = fitting(versions, queries, *found[1:])
    assert any_moment(some, lambda version: same(found, right_ranges(version, visible, threshold)))


def check_counts(world, rng):
    size, versions = world.during(len, world.index)
    assert any_moment(versions, lambda version: (version != NONE).sum() == size)
    ids, versions = world.during(lambda: world.index.ids)
    assert any_moment(versions, lambda version: same([np.flatnonzero(version != NONE)], [ids]))
    flops, versions = world.during(world.index.flops, ASKED)
    assert any_moment(versions, lambda v: same([POSTINGS[:, v[v != NONE]].sum(axis=1)], [flops]))
    assert world.index.next_id == world.ids


def check_whole(index, versions):
    """An index that nobody changes holds the rows of one moment; returns what."""
    ids = index.ids
    rows = index.reconstruct(ids).toarray()
    held = [
        [v for v in some if same([ids[ids % WRITERS == w] // WRITERS], [np.flatnonzero(v != NONE)])]
        for w, some in enumerate(versions)
    ]
    for parts in itertools.product(*held):
        version = joined(parts)
        if same([ROWS[version[ids]]], [rows]):
            break
    else:
        raise AssertionError("the rows of no moment")
    everything = np.ones(len(version), bool)
    assert same(index.search(ASKED, 20), right_answer(version, 20, everything, -np.inf))
    return version


def check_changed(index, version, rng, threads=2):
    """What is done to a copy is done to it alone."""
    gone = np.flatnonzero((version != NONE) & (rng.random(len(version)) < 0.3))
    assert index.remove(gone) == len(gone)
    index.compact(threads)
    left = version.copy()
    left[gone] = NONE
    check_whole(index, [[left[writer::WRITERS]] for writer in range(WRITERS)])


def check_copy(world, rng):
    duplicate = [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))][rng.integers(3)]
    made, versions = world.during(duplicate, world.index)
    check_changed(made, check_whole(made, versions), rng)


def check_file(world, rng):
    path = world.folder / f"{threading.get_ident()}.index"
    _, versions = world.during(world.index.save, path)
    loaded = SparseIndex.load(path, mmap=bool(rng.integers(2)), verify=bool(rng.integers(2)))
    check_changed(loaded, check_whole(loaded, versions), rng)


def check_merged(world, rng):
    """The index is the other one, and goes on changing."""
    merged = SparseIndex(DIMS, block_rows=64)
    _, versions = world.during(merged.merge, world.index, num_threads=2)
    check_changed(merged, check_whole(merged, versions), rng)


def check_fork(world, rng):
    """The child has an index that works, whatever the parent's threads were doing."""

    def fork():
        pid = os.fork()
        if pid:
            return pid
        signal.alarm(60)  # ends a child that hangs
        return 0

    pid, versions = world.during(fork)
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        return
    try:
        version = check_whole(world.index, versions)
        check_changed(world.index, version, rng, CHILD_THREADS)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


KINDS = (
    *(check_search, check_effort, check_range_search, check_counts),
    *(check_copy, check_file, check_merged),
    *([] if "libasan" in SANITIZER else [check_fork]),
)


def read(world, seed):
    rng = np.random.default_rng(seed)
    kinds = [KINDS[i % len(KINDS)] for i in range(int(READS * STRESS))]
    for kind in rng.permutation(kinds):
        kind(world, rng)


def change(world, writer):
    """Adds, merges, removes and compacts until it is told to stop; knows what it has."""
    rng, history = np.random.default_rng(writer), world.histories[writer]
    while not world.stop.is_set():
        now = history.versions[-1]
        have, free = np.flatnonzero(now != NONE), np.flatnonzero(now == NONE)
        count, threads = int(rng.choice([1, 5, 60])), int(rng.integers(1, 4))
        after = now.copy()
        action = rng.choice(["add", "merge", "remove", "remove", "compact", "refused"])
        if action == "compact":
            world.index.compact(threads)
            rows = world.index.reconstruct(have * WRITERS + writer)
            assert same([rows.toarray()], [ROWS[now[have]]])
        elif action in ("add", "merge") and len(free):
            some = rng.permutation(free)[:count]
            after[some] = rng.integers(0, POOL, len(some))
            rows, ids = ROWS[after[some]], some * WRITERS + writer
            if action == "merge":
                other = SparseIndex.build(rows, ids)
                history.change(after, world.index.merge, other, threads)
            else:
                given = history.change(after, world.index.add, rows, ids, threads)
                assert same([given], [ids])
        elif action == "remove" and len(have) > len(now) // 3:
            some = rng.permutation(have)[:count]
            after[some] = NONE
            removed = history.change(after, world.index.remove, some * WRITERS + writer)
            assert removed == len(some)
        elif action == "refused":
            ids = have[:2] * WRITERS + writer
            with pytest.raises(ValueError, match="which a row of the index has"):
                world.index.add(ROWS[:2], ids, threads)
            with pytest.raises(ValueError, match="ids holds"):
                world.index.remove([*ids, world.ids + 1])


@pytest.mark.parametrize(("block_rows", "ids"), [(64, 700), (1024, 3000)])
@pytest.mark.parametrize("mapped", [False, True])
def test_every_answer_is_that_of_a_moment_during_the_call(tmp_path, block_rows, ids, mapped):
    world = World(block_rows, ids, tmp_path, mapped)
    assert (world.index.nbytes_by_part["cells"] > 0) == (block_rows == 1024)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with concurrent.futures.ThreadPoolExecutor(WRITERS + READERS) as pool:
            writers = [pool.submit(change, world, writer) for writer in range(WRITERS)]
            readers = [pool.submit(read, world, 10 + number) for number in range(READERS)]
            try:
                for reader in readers:
                    reader.result()
            finally:
                world.stop.set()
            for writer in writers:
                writer.result()
        assert world.crowded > READERS, "few calls that others changed the index during"
    finally:
        sys.setswitchinterval(interval)
    check_whole(world.index, [history.versions[-1:] for history in world.histories])
