import os
import stat

import pytest

from sparse_embed.common.files import atomic_path


def test_block_that_succeeds_replaces_the_file(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".json"
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
        calls.append(("fsync", os.fstat(handle).st_size))
        fsync(handle)

    def noted_replace(source, target):
        calls.append(("replace", os.path.getsize(source)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    with atomic_path(path) as temporary:
        temporary.write_text("whole")
    assert calls == [("fsync", 5), ("replace", 5)]


def test_the_temporary_file_keeps_all_suffixes(tmp_path):
    """np.savez, for one, appends to names that do not end as it expects."""
    with atomic_path(tmp_path / "rows.labels.npz") as temporary:
        assert temporary.name.endswith(".labels.npz")
        assert temporary.name.startswith(".rows.")
