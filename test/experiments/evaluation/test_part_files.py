"""Embeddings in many files, and the sharded index that is built from them."""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.experiments.evaluation import part_files
from sparse_embed.experiments.evaluation.embedding_files import Embeddings, save
from sparse_embed.experiments.exporting.rows import open_rows
from sparse_embed.retrieval import SparseIndex, shard_folder


@pytest.fixture
def parts(tmp_path):
    """A folder of three parts of different sizes, and all rows."""
    rng = np.random.default_rng(0)
    rows = scipy.sparse.csr_array(scipy.sparse.random(60, 16, 0.3, "csr", np.float32, rng=rng))
    (tmp_path / "parts").mkdir()
    for number, (begin, end) in enumerate([(0, 10), (10, 45), (45, 60)]):
        path = tmp_path / "parts" / f"part-{number:05d}.npz"
        save(path, Embeddings(rows[begin:end], np.arange(begin, end), {}))
    return tmp_path / "parts", rows


def test_parts_are_found_in_the_order_of_their_names(parts):
    folder, rows = parts
    (folder / "failed.npz").touch()
    names = [f"part-{number:05d}.npz" for number in range(3)]
    for value in (str(folder), f"{folder}/part-*.npz"):
        found = part_files.part_files("parts", value)
        assert [path.name for path in found] == names
    assert part_files.count_rows(found) == 60
    read, ids = zip(*part_files.read_rows("parts", found), strict=True)
    np.testing.assert_array_equal(scipy.sparse.vstack(read).toarray(), rows.toarray())
    np.testing.assert_array_equal(np.concatenate(ids), np.arange(60))


def test_rows_of_embed_parts_have_the_numbers_of_their_examples(parts):
    """Two parts of 30 examples: of the first, example 3 failed; of the second, all; and a third."""
    folder, rows = parts
    about = {"first": 0, "examples": 30, "failed": [3]}
    for path in folder.glob("part-*"):
        path.unlink()
    save(folder / "part-00000.npz", Embeddings(rows[:29], np.arange(29), about))
    about = {"first": 60, "examples": 2, "failed": []}
    save(folder / "part-00002.npz", Embeddings(rows[29:31], np.arange(2), about))
    setting = {"examples": 62, "part_examples": 30}
    (folder / part_files.SETTING).write_text(json.dumps(setting))
    with pytest.raises(UsageError, match=r"has finished: part 1 is missing"):
        part_files.part_files("parts", str(folder))
    (folder / "part-00001.failed.json").write_text(json.dumps([{}] * 30))
    with pytest.raises(UsageError, match=r"has finished: failed.jsonl is missing"):
        part_files.part_files("parts", str(folder))
    (folder / part_files.FAILED).touch()
    found = part_files.part_files("parts", str(folder))
    ids = np.concatenate([ids for _, ids in part_files.read_rows("parts", found)])
    np.testing.assert_array_equal(ids, [0, 1, 2, *range(4, 30), 60, 61])
    exported = open_rows(folder)
    np.testing.assert_array_equal(exported.index.ids, ids)
    assert [one["label"] for one in exported.payloads_of(ids[-3:])] == [28, 0, 1]


def test_what_is_not_there_is_named(parts):
    folder, _ = parts
    for value, message in (
        (None, "--parts is not given"),
        (str(folder / "none"), "expected a folder that holds part-"),
        (str(folder.parent), "expected a folder that holds part-"),
    ):
        with pytest.raises(UsageError, match=message):
            part_files.part_files("parts", value)
    (folder / "part-00001.npz").write_bytes(b"damaged")
    with pytest.raises(DataError, match="part-00001"):
        part_files.count_rows(part_files.part_files("parts", str(folder)))


def test_build_shards(parts, tmp_path):
    folder, rows = parts
    command = [sys.executable, "-m", "sparse_embed.experiments.build_shards"]
    command += [f"--parts={folder}", f"--index_folder={tmp_path / 'index'}", "--shards=4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("15 rows") == 4
    manifest = shard_folder.read(tmp_path / "index")
    one = SparseIndex.build(rows)
    found = [shard_folder.open_shard(tmp_path / "index", s, 16) for s in manifest.shards]
    ids = np.concatenate([shard.ids for shard in found])
    np.testing.assert_array_equal(ids, one.ids)
    for shard in found:
        ours, theirs = shard.reconstruct(shard.ids), one.reconstruct(shard.ids)
        assert (ours.data.tobytes(), ours.indices.tobytes()) == (
            theirs.data.tobytes(),
            theirs.indices.tobytes(),
        )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "expected a folder without a sharded index" in done.stderr
