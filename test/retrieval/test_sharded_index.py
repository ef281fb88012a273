"""Shards on a real Ray: the results of one index, whatever happens to the processes."""

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common import ray_session
from sparse_embed.common.failures import DataError, MachineError
from sparse_embed.retrieval import (
    OverloadedError,
    Reranker,
    ShardedIndex,
    ShardUnavailableError,
    SparseIndex,
    TwoStage,
    shard_folder,
)

DIMS, ROWS = 64, 4000
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "distributed.md"

with_ray = pytest.mark.engines


@pytest.fixture(scope="module")
def ray():
    """A Ray for all tests of this file; its sockets need a short path."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'sparse-embed[distributed]'")
    folder = tempfile.mkdtemp(prefix="ray")
    yield ray_session.join("tests", temp_folder=folder)
    ray_session.leave()
    shutil.rmtree(folder, ignore_errors=True)


def make_rows(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = scipy.sparse.random(count, DIMS, 0.1, "csr", np.float32, rng=rng)
    rows.data = np.round(rows.data * 8 - 2) / 4  # signed, with many ties
    return rows


@pytest.fixture(scope="module")
def shared(ray, tmp_path_factory):
    """Four shards and one index of the same rows, which no test changes."""
    rows = make_rows(ROWS)
    with ShardedIndex.build(rows, tmp_path_factory.mktemp("shared"), 4) as index:
        yield index, SparseIndex.build(rows)


def assert_same(index, one, queries, k=10, deadline=60, **options):
    got = index.search(queries, k, deadline=deadline, **options)
    want = one.search(queries, k, **options)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.tobytes()


def process_of(index, name):
    return next(health.pid for health in index.health(60) if health.name == name)


@contextlib.contextmanager
def stopped(index, name):
    """Stops the process of a shard for a while: it lives, and does not answer."""
    pid = process_of(index, name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_without_ray_one_line_names_the_extra(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "ray" else find(name, *more),
    )
    message = r"^ShardedIndex needs ray, .*: pip install 'sparse-embed\[distributed\]'$"
    for use in (
        lambda: ShardedIndex.build(np.eye(3), tmp_path, 2),
        lambda: ShardedIndex.from_files([], tmp_path),
        lambda: ShardedIndex.open(tmp_path),
    ):
        with pytest.raises(ImportError, match=message):
            use()
    assert not list(tmp_path.iterdir())


@with_ray
def test_thousands_of_queries_with_ids_filters_and_removals(ray, tmp_path):
    rng = np.random.default_rng(0)
    rows, ids = make_rows(ROWS), rng.permutation(3 * ROWS)[:ROWS]
    one = SparseIndex.build(rows, ids)
    stream = ((rows[i : i + 300], ids[i : i + 300]) for i in range(0, ROWS, 300))
    count = 0
    with ShardedIndex.build(stream, tmp_path, shards=4) as index:
        for turn in range(12):
            if turn in (3, 8):  # some of these replace rows that were removed
                more, gone = make_rows(50, turn), np.setdiff1d(ids, one.ids)[:50]
                wanted = gone if turn == 8 else None
                np.testing.assert_array_equal(index.add(more, wanted), one.add(more, wanted))
            if turn % 2:
                chosen = rng.choice(one.ids, 100, replace=False)
                assert index.remove(chosen) == one.remove(chosen) == 100
                assert index.remove(chosen) == one.remove(chosen) == 0
            assert len(index) == len(one)
            queries = make_rows(50, 100 + turn)
            some = rng.integers(-1, 4 * ROWS, 500)
            mask = rng.random(one.next_id) < 0.3
            for options in (
                {},
                {"threshold": 0.5},
                {"allowed": some},
                {"forbidden": some},
                {"allowed": mask},
                {"forbidden": mask, "threshold": -0.25, "num_threads": 2},
                {"allowed": []},
            ):
                assert_same(index, one, queries, int(rng.choice([1, 7, 100])), **options)
                count += queries.shape[0]
        assert_same(index, one, queries, k=2 * ROWS)
        assert_same(index, one, queries.toarray())
        assert_same(index, one, queries[:0])
        assert index.shape == (one.shape[0], DIMS)
    assert count > 4000
    with ShardedIndex.open(tmp_path) as again:  # what was acknowledged is on disk
        assert_same(again, one, queries)


@with_ray
def test_mistakes_are_those_of_one_index(shared):
    index, one = shared
    queries = make_rows(2)
    for wrong in (
        {"k": 0},
        {"effort": 2},
        {"num_threads": 0},
        {"threshold": "high"},
        {"queries": np.eye(3)},
        {"queries": np.full((1, DIMS), np.nan)},
        {"allowed": [1.5]},
        {"allowed": [1], "forbidden": [1]},
        {"allowed": np.ones(ROWS - 1, bool)},
        {"forbidden": np.ones(3, bool)},
    ):
        arguments = {"queries": queries, **wrong}
        with pytest.raises(ValueError, match=r"expected|NaN") as theirs:
            one.search(**arguments)
        with pytest.raises(ValueError, match=r"expected|NaN") as ours:
            index.search(**arguments)
        assert str(ours.value) == str(theirs.value)
    with pytest.raises(ValueError, match=r"deadline=0: expected"):
        index.search(queries, deadline=0)
    assert_same(index, one, queries)


@with_ray
def test_killed_processes_under_load_are_started_again(ray, tmp_path):
    rows = make_rows(ROWS)
    one = SparseIndex.build(rows)
    pool = [make_rows(16, seed) for seed in range(8)]
    wanted = [one.search(queries, 10) for queries in pool]
    with ShardedIndex.build(rows, tmp_path, 4) as index:
        stop, problems, done = threading.Event(), [], [0, 0]

        def search(client):
            while not stop.is_set():
                place = done[client] % len(pool)
                try:
                    got = index.search(pool[place], 10, deadline=60)
                    if any(
                        a.tobytes() != b.tobytes() for a, b in zip(got, wanted[place], strict=True)
                    ):
                        problems.append("wrong")
                except Exception as error:
                    problems.append(repr(error))
                done[client] += 1

        threads = [threading.Thread(target=search, args=(client,)) for client in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(3):
            time.sleep(0.3)
            name = index.shards[turn]
            pid = process_of(index, name)
            os.kill(pid, signal.SIGKILL)
            while process_of(index, name) == pid:
                time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        assert problems == []
        assert min(done) > 3
        assert all(health.ok for health in index.health(60))


@with_ray
def test_a_shard_that_stays_away_is_named_or_left_out(shared):
    index, one = shared
    queries = make_rows(5, 1)
    with stopped(index, "shard-00002"):
        begin = time.monotonic()
        with pytest.raises(ShardUnavailableError, match=r"within 1 s from shard-00002") as caught:
            index.search(queries, deadline=1.0)
        assert caught.value.shards == ("shard-00002",)
        assert isinstance(caught.value, MachineError)
        assert time.monotonic() - begin < 2
        scores, ids, missing = index.search(queries, 10, deadline=1.0, partial=True)
        assert missing == ("shard-00002",)
        quarter = np.arange(ROWS) // (ROWS // 4) == 2
        want = one.search(queries, 10, forbidden=quarter)
        assert (scores.tobytes(), ids.tobytes()) == (want[0].tobytes(), want[1].tobytes())
        sick = {health.name: health for health in index.health(1.0) if not health.ok}
        assert list(sick) == ["shard-00002"]
        assert sick["shard-00002"].reason
    *found, missing = index.search(queries, 10, partial=True, deadline=60)
    assert missing == ()
    assert found[1].tobytes() == one.search(queries, 10)[1].tobytes()


@with_ray
def test_searches_do_not_pile_up(ray, tmp_path):
    """Neither in front of a busy index, nor behind calls that were given up."""
    rows = make_rows(100)
    with ShardedIndex.build(rows, tmp_path, 2, max_in_flight=1) as index:
        one = SparseIndex.build(rows)
        assert_same(index, one, rows)
        with stopped(index, "shard-00001"):
            caught = []

            def search():
                try:
                    index.search(rows, deadline=2.0)
                except ShardUnavailableError as error:
                    caught.append(error)

            thread = threading.Thread(target=search)
            thread.start()
            time.sleep(0.5)
            with pytest.raises(OverloadedError, match=r"deadline=0.2: 1 other searches"):
                index.search(rows, deadline=0.2)
            thread.join()
            assert len(caught) == 1
            reasons = []
            for _ in range(8):
                with pytest.raises(ShardUnavailableError) as error:
                    index.search(rows, deadline=0.2)
                reasons.append(str(error.value))
            assert "pending" in reasons[-1], reasons
        assert_same(index, one, rows)


@with_ray
def test_processes_that_ray_gives_up_are_replaced(ray, tmp_path):
    rows = make_rows(100)
    with ShardedIndex.build(rows, tmp_path, 2) as index:
        one = SparseIndex.build(rows)
        assert_same(index, one, rows)
        for actor in index._actors.values():
            ray.kill(actor, no_restart=True)
        assert_same(index, one, rows)


@with_ray
def test_a_lost_file_is_named(ray, tmp_path):
    rows = make_rows(100)
    with ShardedIndex.build(rows, tmp_path, 2) as index:
        pid = process_of(index, "shard-00001")
        kept = (tmp_path / "shard-00001.index").rename(tmp_path / "away")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ShardUnavailableError, match=r"shard-00001: .*No such file"):
            index.search(rows, deadline=10)
        reasons = [health.reason for health in index.health(1.0)]
        assert reasons[0] is None
        assert "No such file" in reasons[1]
        kept.rename(tmp_path / "shard-00001.index")
        assert_same(index, SparseIndex.build(rows), rows)
        # A file of another index is no hiccup: it is told at once.
        pid = process_of(index, "shard-00001")
        SparseIndex.build(rows[:7]).save(tmp_path / "shard-00001.index")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(DataError, match=r"expected 50 of 50, 64 for shard-00001"):
            index.search(rows, deadline=60)
        _, ids, missing = index.search(rows, 5, deadline=5, partial=True)
        assert missing == ("shard-00001",)
        assert ids.max() < 50
    with pytest.raises(DataError, match=r"shard-00001"):
        ShardedIndex.open(tmp_path)


@with_ray
def test_others_follow_changes(ray, tmp_path):
    """After `refresh`; or when what they know of is gone."""
    rows = make_rows(200)
    one = SparseIndex.build(rows)
    before = one.search(rows, 5)
    with (
        ShardedIndex.build(rows, tmp_path, 2) as index,
        ShardedIndex.open(tmp_path) as other,
    ):
        other.search(rows, 5)
        index.remove([3, 150])
        one.remove([3, 150])
        np.testing.assert_array_equal(other.search(rows, 5)[1], before[1])
        other.refresh()
        assert_same(other, one, rows)
        index.add(rows[:10])
        one.add(rows[:10])
        index.remove([4, 151, 203])
        one.remove([4, 151, 203])
        os.kill(process_of(other, "shard-00000"), signal.SIGKILL)  # and with it the old state
        assert_same(other, one, rows)


@with_ray
def test_a_search_sees_one_state(ray, tmp_path):
    """While another thread removes rows of both shards, which appear to go at the same moment."""
    rows = scipy.sparse.csr_array(np.ones((200, 1), np.float32))
    with ShardedIndex.build(rows, tmp_path, 2) as index:
        done, seen = threading.Event(), []

        def search():
            while not done.is_set():
                seen.append(index.search(rows[:1], 200, deadline=60)[1][0])

        threads = [threading.Thread(target=search) for _ in range(2)]
        for thread in threads:
            thread.start()
        for place in range(20):
            index.remove([place, 100 + place])
            assert not np.isin([place, 100 + place], index.search(rows[:1], 200)[1]).any()
        done.set()
        for thread in threads:
            thread.join()
    assert len(seen) > 5
    for ids in seen:
        ids = ids[ids >= 0]
        np.testing.assert_array_equal(ids[ids < 100] + 100, ids[ids >= 100])


@with_ray
def test_saved_files_are_searched(ray, tmp_path):
    rows = make_rows(90)
    paths = [tmp_path / f"{place}.index" for place in range(3)]
    for place, path in enumerate(paths):
        ids = np.arange(30 * place, 30 * place + 30)
        SparseIndex.build(rows[ids], ids).save(path)
    with ShardedIndex.from_files(paths, tmp_path / "index") as index:
        assert index.shards == ("0", "1", "2")
        assert_same(index, SparseIndex.build(rows), rows)


@with_ray
def test_another_process_joins_by_address(ray, shared):
    index, one = shared
    code = (
        "import sys, numpy as np; from sparse_embed.retrieval import ShardedIndex\n"
        "with ShardedIndex.open(sys.argv[1], address=sys.argv[2]) as index:\n"
        "    print(index.search(np.eye(64)[:1], 5)[1][0].tolist())"
    )
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", code, str(index.folder), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(one.search(np.eye(64)[:1], 5)[1][0].tolist()), done.stderr


@with_ray
def test_a_closed_index_says_so(ray, tmp_path):
    index = ShardedIndex.build(make_rows(10), tmp_path, 2)
    index.close()
    index.close()
    for use in (lambda: index.search(make_rows(1)), lambda: index.remove([1]), index.refresh):
        with pytest.raises(ValueError, match=r"the index is closed"):
            use()
    assert shard_folder.read(tmp_path).changes == 0
    assert ray.is_initialized()


@with_ray
def test_a_search_that_is_under_way_ends_when_the_index_is_closed(ray, tmp_path):
    rows = make_rows(100)
    index = ShardedIndex.build(rows, tmp_path, 2)
    told = []

    def search():
        try:
            index.search(rows, deadline=100)
        except ValueError as error:
            told.append(str(error))

    with stopped(index, "shard-00000"):
        thread = threading.Thread(target=search)
        thread.start()
        time.sleep(1)
        begin = time.monotonic()
        index.close()
        thread.join()
    assert told == ["the index is closed: expected one that is open"]
    assert time.monotonic() - begin < 30


@with_ray
def test_two_stages(ray, tmp_path):
    """Filters go to the shards; a re-ranker with ids of its own may have more rows."""
    rows = make_rows(200)
    dense = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    reranker = Reranker(dense, ids=np.arange(200))
    with ShardedIndex.build(rows, tmp_path, 2) as index:
        one = SparseIndex.build(rows)
        for stage in (index, one):
            stage.remove([5, 150])
        asked = {"k": 4, "shortlist": 20, "allowed": np.arange(0, 200, 3)}
        ours = TwoStage(index, reranker).search(rows, dense, **asked)
        theirs = TwoStage(one, reranker).search(rows, dense, **asked)
    for found, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(found, wanted)


@with_ray
def test_ray_starts_and_ends_with_the_index(tmp_path):
    """In a process of its own: quiet, on the loopback interface alone, and nothing stays."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'sparse-embed[distributed]'")
    temporary = tempfile.mkdtemp(prefix="ray")
    code = (
        "import sys, numpy as np; from sparse_embed.retrieval import ShardedIndex\n"
        "with ShardedIndex.build(np.eye(4), sys.argv[1], 2, temp_folder=sys.argv[2]) as index:\n"
        "    print(index.search(np.eye(4), 1)[1].ravel().tolist())\n"
        "    import ray; print(ray.util.get_node_ip_address())\n"
        "print(ray.is_initialized())"
    )
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", code, str(tmp_path / "index"), temporary]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables)
    assert done.stdout.splitlines() == ["[0, 1, 2, 3]", "127.0.0.1", "False"], done.stderr
    assert done.stderr == ""
    assert os.listdir(temporary)  # it was used
    shutil.rmtree(temporary, ignore_errors=True)


def examples():
    """The examples of the page. They are not those of `test_readme`, since they need Ray."""
    return re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@with_ray
def test_the_example_of_the_page(ray, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = {"rows": make_rows(300), "queries": make_rows(8, 1)}
    exec(compile(examples()[0], PAGE.name, "exec"), space)
    want = SparseIndex.build(space["rows"]).search(space["queries"], 10, allowed=range(0, 300, 2))
    assert space["ids"].tobytes() == want[1].tobytes()
    assert "ok=True" in capsys.readouterr().out


@with_ray
def test_workers_of_training_are_started_beside_ray(ray, monkeypatch, capsys):
    """The page's example, with a command that sees whether `train` would know its workers."""
    code = next(text for text in examples() if "TF_CONFIG" in text)
    check = "import os, json; c = json.loads(os.environ['TF_CONFIG']); i = c['task']['index']"
    check += "; assert c['cluster']['worker'][i] == '127.0.0.1:12345'"
    for old, new in (
        ('"-m", "sparse_embed.experiments.train", "--strategy=multi_worker"', f'"-c", "{check}"'),
        ("num_gpus=1", "num_cpus=0"),
        ('ray.init(address="auto")', ""),
    ):
        assert old in code
        code = code.replace(old, new)
    exec(compile(code, PAGE.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip() == "[0]"
