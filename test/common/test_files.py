import concurrent.futures
import contextlib
import errno
import fcntl
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading

import pytest

from sparse_embed.common.files import atomic_path, remove_abandoned


def test_block_that_succeeds_replaces_the_file(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.name == path.name  # np.savez, for one, appends to names it does not know
        assert temporary.stat().st_dev == tmp_path.stat().st_dev
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["result.json"]


def test_block_that_fails_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="power cut"), atomic_path(path) as temporary:
        temporary.write_text("half of it")
        raise RuntimeError("power cut")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.json"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
def test_file_gets_the_permissions_of_an_ordinary_one(tmp_path, umask):
    before = os.umask(umask)
    try:
        (tmp_path / "ordinary").write_text("")
        with atomic_path(tmp_path / "atomic") as temporary:
            temporary.write_text("")
        (tmp_path / "later").write_text("")
        assert os.umask(umask) == umask  # what it was
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["ordinary", "atomic", "later"], 0o666 & ~umask)


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="the system does not list open files")
def test_no_file_is_left_open(tmp_path):
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        with atomic_path(tmp_path / "result.json") as temporary:
            temporary.write_text("{}")
    assert len(os.listdir("/dev/fd")) == before


def test_content_is_on_the_disk_before_the_name_points_to_it(tmp_path, monkeypatch):
    """Otherwise a crash right after the rename could leave an empty file under the name."""
    path, calls = tmp_path / "result.json", []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle):
        status = os.fstat(handle)
        folder = stat.S_ISDIR(status.st_mode)
        calls.append(("fsync folder", 0) if folder else ("fsync", status.st_size))
        fsync(handle)

    def noted_replace(source, target):
        calls.append(("replace", os.path.getsize(source)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    with atomic_path(path) as temporary:
        temporary.write_text("whole")
    assert calls == [("fsync", 5), ("replace", 5), ("fsync folder", 0)]


HOLD = """
import sys
from sparse_embed.common.files import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("holding", flush=True)
    sys.stdin.read()
    temporary.write_text("whole")
"""


@contextlib.contextmanager
def holder(path):
    """A process in the middle of writing `path`."""
    command = [sys.executable, "-c", HOLD, path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "holding\n"
        yield process


def test_what_a_killed_process_left_is_gone_after_the_next_save(tmp_path):
    path = tmp_path / "result.json"
    for _ in range(3):
        with holder(path) as process:
            process.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.rglob("*"))) == 2  # nothing piles up meanwhile
    with atomic_path(path) as temporary:
        temporary.write_text("mine")
    assert os.listdir(tmp_path) == ["result.json"]
    assert path.read_text() == "mine"


def test_what_killed_processes_left_is_removed_from_a_folder_that_waits_for_living_ones(tmp_path):
    with holder(tmp_path / "dead [1].json") as process:
        process.send_signal(signal.SIGKILL)
    with holder(tmp_path / "living.json") as process:
        thread = threading.Thread(target=remove_abandoned, args=[tmp_path])
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        process.communicate()
    thread.join()
    assert os.listdir(tmp_path) == ["living.json"]
    assert (tmp_path / "living.json").read_text() == "whole"


def test_writers_of_one_path_wait_for_each_other(tmp_path):
    """The temporary file of a living process is never taken for an abandoned one."""
    path = tmp_path / "result.json"
    found = []

    def write():
        with atomic_path(path) as temporary:
            found.append(path.read_text())
            temporary.write_text("second")

    with holder(path) as process:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(0.3)
        assert not found
        process.communicate()
    thread.join()
    assert found == ["whole"]
    assert path.read_text() == "second"
    assert os.listdir(tmp_path) == ["result.json"]


def test_many_threads_write_one_path(tmp_path):
    path = tmp_path / "result.json"

    def write(number):
        with atomic_path(path) as temporary:
            temporary.write_text(f"{number}" * 1000)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(write, [n % 10 for n in range(200)]))
    assert len(set(path.read_text())) == 1
    assert len(path.read_text()) == 1000
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    path = tmp_path / "result.json"
    with atomic_path(path) as temporary:
        temporary.write_text("first")
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        with atomic_path(path) as temporary:
            temporary.write_text("second")
        assert path.read_text() == "second"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_folders_that_cannot_be_locked_are_written_to_without_a_lock(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EBADF, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with atomic_path(tmp_path / "one") as one, atomic_path(tmp_path / "one") as two:
        one.write_text("one")
        two.write_text("two")
    assert (tmp_path / "one").read_text() == "one"


def test_links_stay_links_and_modes_stay_modes(tmp_path):
    (tmp_path / "there").mkdir()
    real = tmp_path / "there" / "real.json"
    real.write_text("old")
    real.chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to("there/real.json")
    with atomic_path(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert link.readlink() == pathlib.Path("there/real.json")
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_link_to_nothing_yet_is_filled(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("target")
    with atomic_path(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert (tmp_path / "target").read_text() == "new"


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_only_regular_files_are_replaced(tmp_path, kind):
    path = tmp_path / "there"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = pathlib.Path("/dev/null")
    before = path.stat().st_mode
    with pytest.raises(OSError, match="expected a regular file") as caught, atomic_path(path):
        pytest.fail("the block must not be entered")
    assert caught.value.filename == str(path)
    assert path.stat().st_mode == before
    assert not list(path.parent.glob(".*.writing*"))


def test_a_full_disk_is_named_in_plain_words(tmp_path):
    """Whatever the library that writes makes of it."""
    path = tmp_path / "result.h5"
    path.write_text("old")
    with pytest.raises(OSError, match="No space left on device") as caught, atomic_path(path):
        raise OSError(errno.ENOSPC, "Can't synchronously write data (file write failed: ...)")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.h5"]
