"""The folder of a sharded index: how it is made and changed, and what is told of damage. No Ray."""

import copy
import dataclasses
import functools
import itertools
import json
import operator
import random
import signal
import subprocess
import sys
import time
import weakref
import zlib

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_embed.common.failures import DataError
from sparse_embed.retrieval import SparseIndex, shard_folder
from sparse_embed.retrieval.merging import merge_results
from sparse_embed.retrieval.shard_folder import Removed, Shard
from sparse_embed.retrieval.shard_server import Request, ShardServer

DIMS = 12


def make_rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return scipy.sparse.random(count, DIMS, 0.3, "csr", np.float32, rng=rng)


def search(folder, queries, k, **options):
    """Searches every shard of a folder as its process would, and merges."""
    manifest = shard_folder.read(folder)
    arrays = queries.indptr.astype(np.int64), queries.indices, queries.data
    request = Request(queries.shape, arrays, k, options)
    servers = [(ShardServer(folder, manifest.dims), shard) for shard in manifest.shards]
    return merge_results([server.search(shard, request) for server, shard in servers], k)


def assert_same(folder, one, queries, k=5, **options):
    got, want = search(folder, queries, k, **options), one.search(queries, k, **options)
    width = got[0].shape[1]  # as many places as all rows have
    for ours, theirs in zip(got, want, strict=True):
        assert ours.tobytes() == theirs[:, :width].tobytes()
    assert (want[1][:, width:] == -1).all()


def pieces(rows, size):
    return (rows[i : i + size] for i in range(0, rows.shape[0], size))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda rows: rows, {"shards": 4}),
        (lambda rows: rows.toarray(), {"shards": 4}),
        (lambda rows: list(pieces(rows, 7)), {"shards": 4}),
        (lambda rows: pieces(rows, 7), {"shards": 4}),
        (lambda rows: pieces(rows, 100), {"shards": 4, "rows": 101}),
        (lambda rows: pieces(rows, 3), {"shard_rows": 30}),
        (lambda rows: rows, {"shard_rows": 30}),
    ],
)
def test_shards_are_one_index(tmp_path, make, options):
    rows = make_rows(101)
    made = shard_folder.create(tmp_path / "index", make(rows), **options)
    assert made == shard_folder.read(tmp_path / "index")
    assert [len(shard) for shard in made.shards] in ([25, 25, 25, 26], [30, 30, 30, 11])
    assert (made.dims, made.next_id) == (DIMS, 101)
    assert_same(tmp_path / "index", SparseIndex.build(rows), make_rows(20, 1), k=7)
    names = {path.name for path in (tmp_path / "index").iterdir()}
    assert names == {".lock", "manifest.json", *(f"shard-{n:05d}.index" for n in range(4))}


def test_batches_with_ids(tmp_path):
    rows, ids = make_rows(50), np.random.default_rng(0).permutation(1000)[:50]
    stream = ((rows[i : i + 8], ids[i : i + 8]) for i in range(0, 50, 8))
    made = shard_folder.create(tmp_path, stream, shards=3)
    assert made.next_id == ids.max() + 1
    assert_same(tmp_path, SparseIndex.build(rows, ids), make_rows(9, 1))


def test_one_batch_is_in_memory_at_a_time(tmp_path):
    """Each batch is let go before the next is made, also where shards end within batches."""
    living, most = set(), 0

    def stream():
        nonlocal most
        for number in range(12):
            batch = make_rows(10, number)
            living.add(number)
            weakref.finalize(batch.data, living.discard, number)
            most = max(most, len(living))
            yield batch
            del batch

    shard_folder.create(tmp_path, stream(), shard_rows=25)
    assert most == 1


def test_fewer_rows_than_shards(tmp_path):
    rows = make_rows(2)
    made = shard_folder.create(tmp_path / "two", rows, shards=4)
    assert sorted(map(len, made.shards)) == [0, 0, 1, 1]
    assert_same(tmp_path / "two", SparseIndex.build(rows), rows)
    made = shard_folder.create(tmp_path / "none", iter([rows[:0]]), shard_rows=4)
    assert list(map(len, made.shards)) == [0]
    shard_folder.add(tmp_path / "none", rows)
    assert_same(tmp_path / "none", SparseIndex.build(rows), rows)


def test_what_cannot_be_built_is_refused(tmp_path):
    rows = make_rows(10)
    for options in ({}, {"shards": 2, "shard_rows": 5}):
        with pytest.raises(ValueError, match=r"expected one of them"):
            shard_folder.create(tmp_path, rows, **options)
    with pytest.raises(ValueError, match=r"shards=0: expected an integer >= 1"):
        shard_folder.create(tmp_path, rows, shards=0)
    with pytest.raises(ValueError, match=r"csr yields nothing"):
        shard_folder.create(tmp_path, iter([]), shards=2)
    for told, had in ((9, "more"), (11, "10")):
        with pytest.raises(ValueError, match=f"rows={told}: csr has {had}"):
            shard_folder.create(tmp_path, pieces(rows, 3), shards=2, rows=told)
    with pytest.raises(ValueError, match=r"ids holds 3, which a row of shard-00000 has"):
        shard_folder.create(tmp_path, rows, shards=2, ids=[0, 1, 2, 3, 4, 5, 6, 7, 3, 9])
    with pytest.raises(DataError, match=r"manifest.json"):  # none of these has left an index
        shard_folder.read(tmp_path)
    shard_folder.create(tmp_path, rows, shards=2)
    with pytest.raises(ValueError, match=r"holds a sharded index already"):
        shard_folder.create(tmp_path, rows, shards=2)


def test_saved_files_become_shards(tmp_path):
    """Where they lie; with removed rows, and with files of one name in several folders."""
    rows, folder = make_rows(30), tmp_path / "index"
    one = SparseIndex.build(rows)
    for place, begin in enumerate((0, 10, 20)):
        (tmp_path / str(place)).mkdir()
        part = SparseIndex.build(rows[begin : begin + 10], ids=np.arange(begin, begin + 10))
        part.remove([begin + 3])
        one.remove([begin + 3])
        part.save(tmp_path / str(place) / "part.index")
    paths = [tmp_path / str(place) / "part.index" for place in range(3)]
    made = shard_folder.create_from_files(folder, paths)
    assert len({shard.name for shard in made.shards}) == 3
    assert made.next_id == 30
    assert_same(folder, one, make_rows(9, 1))
    assert shard_folder.remove(folder, [4, 14])[1] == one.remove([4, 14])
    np.testing.assert_array_equal(shard_folder.add(folder, rows[:2])[1], one.add(rows[:2]))
    assert_same(folder, one, make_rows(9, 1))
    with pytest.raises(ValueError, match=r"ids holds 0, which a row of part has"):
        shard_folder.create_from_files(tmp_path / "other", [paths[0], paths[0]])
    SparseIndex.build(np.eye(3)).save(tmp_path / "three.index")
    with pytest.raises(ValueError, match=r"3 dimensions: expected 12"):
        shard_folder.create_from_files(tmp_path / "other", [paths[0], tmp_path / "three.index"])
    with pytest.raises(ValueError, match=r"no file"):
        shard_folder.create_from_files(tmp_path / "other", [])
    SparseIndex(12).save(tmp_path / "empty.index")
    with pytest.raises(ValueError, match=r"empty\.index twice: expected it once"):
        shard_folder.create_from_files(tmp_path / "other", [tmp_path / "empty.index"] * 2)


def outcome(change, *arguments):
    """What a change returns, without the manifest, or what is wrong with it."""
    try:
        found = change(*arguments)
    except ValueError as error:
        # The id that is named may be another: the smallest, or the first that was given.
        return str(error).partition(" holds ")[0]
    return np.asarray(found[1] if isinstance(found, tuple) else found).tolist()


@settings(max_examples=15)
@given(st.data())
def test_changes_are_those_of_one_index(tmp_path_factory, data):
    """Adding with and without ids, removing, giving removed ids again, in any order."""
    folder = tmp_path_factory.mktemp("index")
    rows = make_rows(20)
    shard_folder.create(folder, rows, shards=data.draw(st.integers(1, 4)))
    one = SparseIndex.build(rows)
    for step in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["add", "add ids", "remove"]))
        ids = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True))
        more = make_rows(len(ids), step + 1)
        wanted = ids if kind == "add ids" else None
        if kind == "remove":
            changes = (one.remove, ids), (functools.partial(shard_folder.remove, folder), ids)
        else:
            changes = (
                (one.add, more, wanted),
                (
                    functools.partial(shard_folder.add, folder),
                    *(more, wanted),
                ),
            )
        results = [outcome(*change) for change in changes]
        assert results[0] == results[1]
    manifest = shard_folder.read(folder)
    assert sum(map(len, manifest.shards)) == len(one)
    assert manifest.next_id == one.next_id
    allowed = data.draw(st.lists(st.integers(-1, 40), max_size=9))
    for options in ({}, {"threshold": 0.1}, {"allowed": allowed}, {"forbidden": allowed}):
        assert_same(folder, one, make_rows(6, 9), **options)
    lists = {shard.removed.file for shard in manifest.shards if shard.removed}
    assert lists == {path.name for path in folder.glob("*.npy")}


def test_a_change_that_is_refused_changes_nothing(tmp_path):
    shard_folder.create(tmp_path, make_rows(20), shards=2)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"ids holds 20, which no row has"):
        shard_folder.remove(tmp_path, [3, 20])
    with pytest.raises(ValueError, match=r"ids holds 15, which a row of shard-00001 has"):
        shard_folder.add(tmp_path, make_rows(2), [30, 15])
    with pytest.raises(ValueError, match=r"csr has 3 columns: expected 12"):
        shard_folder.add(tmp_path, np.eye(3))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_damage_is_told_in_one_sentence(tmp_path):
    folder = tmp_path / "index"
    with pytest.raises(DataError, match=r"manifest.json: expected the manifest of a sharded index"):
        shard_folder.read(folder)
    shard_folder.create(folder, make_rows(20), shards=2)
    shard_folder.remove(folder, [3])
    path = folder / "manifest.json"
    whole = path.read_text()
    content = json.loads(whole)
    content["index"]["next_id"] -= 1
    changes = {
        "": "expected the manifest",
        whole[:-30]: "expected the manifest",
        "[]": "holds no JSON object",
        "{}": "its format is None",
        whole.replace('"version": 1', '"version": 2'): "version 2: this release reads 1",
        json.dumps(content): "its checksum is wrong",
    }
    for text, message in changes.items():
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            shard_folder.read(folder)
    path.write_text(whole)
    (removed,) = folder.glob("*.npy")
    (first, _) = shard_folder.read(folder).shards
    np.save(removed, np.array([4]))
    with pytest.raises(DataError, match=r"its checksum is wrong"):
        shard_folder.open_shard(folder, first, DIMS)
    np.save(removed, np.array([3, 4]))
    with pytest.raises(DataError, match=r"expected 1 ids"):
        shard_folder.open_shard(folder, first, DIMS)
    removed.unlink()
    with pytest.raises(DataError, match=r"the ids removed from shard-00000 are missing"):
        shard_folder.open_shard(folder, first, DIMS)
    SparseIndex.build(make_rows(10, 5)[:9]).save(folder / first.file)
    with pytest.raises(DataError, match=r"9 of 9 rows, 12 dimensions: expected 10 of 10, 12"):
        shard_folder.open_shard(folder, first, DIMS)
    (folder / first.file).write_bytes(b"short")
    with pytest.raises(DataError, match=r"5 bytes: expected .* truncated"):
        shard_folder.read(folder)
    (folder / first.file).unlink()
    with pytest.raises(DataError, match=r"the file of shard-00000 is missing"):
        shard_folder.read(folder)


PATHS = ("..", "../..", "a/b", "/a/../b", "\0", "/\0", "\ud800", "x" * 300, "/x" * 3000)
WRONG = (None, True, -1, 10**30, 1.5, "", *PATHS, [], [1], {})
FIELDS = [
    *(["dims"], ["next_id"], ["changes"], ["shards"], ["shards", 0]),
    *(["shards", 0, field.name] for field in dataclasses.fields(Shard)),
    *(["shards", 0, "removed", field.name] for field in dataclasses.fields(Removed)),
]
OTHER = {  # values that are right, or of which another field is named
    "name": PATHS,
    "removed": (None, {}),
    "shards": ([1],),
    0: ({},),
}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """A folder of two shards with removed rows, and what its manifest holds."""
    folder = tmp_path_factory.mktemp("sharded")
    shard_folder.create(folder, make_rows(20), shards=2)
    shard_folder.remove(folder, [3, 15])
    return folder, json.loads((folder / "manifest.json").read_text())["index"]


def write_manifest(folder, index):
    """Writes a manifest with the right checksum."""
    checksum = zlib.crc32(json.dumps(index, sort_keys=True).encode())
    content = {"format": "sparse_embed shards", "version": 1, "index": index, "checksum": checksum}
    (folder / "manifest.json").write_text(json.dumps(content))


@pytest.mark.parametrize("place", FIELDS, ids=lambda place: ".".join(map(str, place)))
def test_wrong_values_with_the_right_checksum_are_named(sharded, place):
    folder, index = sharded
    where = "index" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
    for value in WRONG:
        if value in OTHER.get(place[-1], ()):
            continue
        changed = copy.deepcopy(index)
        functools.reduce(operator.getitem, place[:-1], changed)[place[-1]] = value
        write_manifest(folder, changed)
        with pytest.raises(DataError) as caught:
            shard_folder.read(folder)
        told = str(caught.value)
        start = f"{folder / 'manifest.json'}: expected the manifest of a sharded index: {where}="
        assert told.startswith(start + repr(value)[:60]), told
        assert ": expected " in told[len(start) :]
        assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("place", "changes", "told"),
    [
        ([], {"dims": 10**6}, "dims=1000000: expected at most"),
        ([], {"next_id": 19}, "next_id=19: expected more than 19"),
        ([], {"more": 1}, "index.more is unknown"),
        (["shards", 1], {"file": "shard-00000.index"}, "expected a file of its own"),
        (["shards", 1], {"name": "shard-00000"}, "expected a name of its own"),
        (["shards", 1], {"living": 11}, "living=11: expected at most its 10 rows"),
        (["shards", 1], {"first_id": 20}, "last_id=19: expected at least its first_id 20"),
        (["shards", 1], {"last_id": -1}, "last_id=-1: expected at least its first_id 10"),
        (["shards", 1], {"living": 0}, "last_id=19: expected -1 without rows"),
        (["shards", 1], {"file": "/a/../b"}, "file='/a/../b': expected"),
        (["shards", 1, "removed"], {"count": 11}, "count=11: expected at most its 10 living rows"),
        (["shards", 1, "removed"], {"checksum": 2**32}, "checksum=4294967296: expected an integer"),
        (["shards", 1, "removed"], {"file": "/a"}, "file='/a': expected the name of a file in"),
    ],
)
def test_values_that_do_not_fit_each_other_are_named(sharded, place, changes, told):
    folder, index = sharded
    changed = copy.deepcopy(index)
    functools.reduce(operator.getitem, place, changed).update(changes)
    write_manifest(folder, changed)
    with pytest.raises(DataError, match=r"manifest\.json: expected the manifest") as caught:
        shard_folder.read(folder)
    assert told in str(caught.value)


@pytest.mark.parametrize("place", [["dims"], ["shards", 0, "rows"]])
def test_fields_that_are_missing_are_named(sharded, place):
    folder, index = sharded
    changed = copy.deepcopy(index)
    del functools.reduce(operator.getitem, place[:-1], changed)[place[-1]]
    write_manifest(folder, changed)
    with pytest.raises(DataError, match=rf"{place[-1]} is missing"):
        shard_folder.read(folder)
    write_manifest(folder, index)
    assert len(shard_folder.read(folder).shards) == 2


CHANGES = """
import pathlib, sys
import numpy as np
from sparse_embed.retrieval import shard_folder
folder = pathlib.Path(sys.argv[1])
while True:
    manifest, ids = shard_folder.add(folder, np.ones((3, 12), np.float32))
    print("added", *ids, flush=True)
    shard_folder.remove(folder, ids[:1])
    print("removed", ids[0], flush=True)
"""


WRITER = """
import pathlib, sys, threading
import numpy as np
from sparse_embed.retrieval import shard_folder
folder = pathlib.Path(sys.argv[1])
given = []
def write():
    for _ in range(5):
        given.extend(shard_folder.add(folder, np.ones((2, 12), np.float32))[1].tolist())
threads = [threading.Thread(target=write) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*given)
"""


def test_several_processes_and_threads_add_at_a_time(tmp_path):
    shard_folder.create(tmp_path, make_rows(20), shards=1)
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    given = [int(id) for writer in writers for id in writer.communicate()[0].split()]
    assert sorted(given) == list(range(20, 60))
    manifest = shard_folder.read(tmp_path)
    found = [shard_folder.open_shard(tmp_path, shard, DIMS).ids for shard in manifest.shards]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(60))


def test_what_killed_changes_left_goes_with_the_next(tmp_path):
    shard_folder.create(tmp_path, make_rows(20), shards=2)
    (tmp_path / "shard-00000.removed-00001.npy").write_bytes(b"left")
    shard_folder.remove(tmp_path, np.array([15]))
    shard_folder.remove(tmp_path, np.array([16]))
    lists = [path.name for path in tmp_path.glob("*.npy")]
    assert lists == ["shard-00001.removed-00002.npy"]


def test_what_was_acknowledged_survives_kills(tmp_path):
    """And what was not is there whole or not at all."""
    shard_folder.create(tmp_path, make_rows(20), shards=2)
    rng = random.Random(0)
    added, removed = set(range(20)), set()
    for _ in range(3):
        command = [sys.executable, "-c", CHANGES, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = list(itertools.islice(process.stdout, rng.randrange(1, 8)))
            time.sleep(rng.uniform(0, 0.02))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        for line in lines:
            word, *ids = line.split()
            (added if word == "added" else removed).update(map(int, ids))
        manifest = shard_folder.read(tmp_path)
        found = set()
        for shard in manifest.shards:
            found |= set(shard_folder.open_shard(tmp_path, shard, DIMS).ids.tolist())
        # At most one change was written and not told.
        assert added - removed - found in (set(), {max(added) - 2})
        assert found - (added - removed) in (
            set(),
            set(range(manifest.next_id - 3, manifest.next_id)),
        )
        added |= found
        removed |= added - found


def test_after_the_largest_id_there_is_none(tmp_path):
    rows, largest = np.eye(3, dtype=np.float32), 2**63 - 1
    shard_folder.create(tmp_path / "a", rows, ids=[0, 5, largest], shards=1)
    with pytest.raises(ValueError, match=f"ids holds {largest + 1}: expected ids <= {largest}"):
        shard_folder.add(tmp_path / "a", rows[:1])
    shard_folder.add(tmp_path / "a", rows[:1], [7])
