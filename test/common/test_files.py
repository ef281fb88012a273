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


def test_file_gets_the_permissions_of_an_ordinary_one(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    with atomic_path(tmp_path / "atomic") as temporary:
        temporary.write_text("")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {stat.S_IMODE(ordinary.stat().st_mode)}
