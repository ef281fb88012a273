"""Embeddings in many files, and the sharded index that is built from them."""

import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.common.files import unfinished
from sparse_embed.experiments.core import part_files
from sparse_embed.experiments.core.embedding_files import Embeddings, save
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


@pytest.fixture
def embedded(parts):
    """What `embed_parts` leaves: two parts of 30 examples, of the first of which one failed."""
    folder, rows = parts
    for path in folder.glob("part-*"):
        path.unlink()
    abouts = ({"first": 0, "examples": 30, "failed": [3]}, {"first": 30, "examples": 30})
    for number, (about, some) in enumerate(zip(abouts, (rows[:29], rows[29:59]), strict=True)):
        note = {"failed": [], **about}
        path = folder / f"part-{number:05}.npz"
        save(path, Embeddings(some, np.arange(some.shape[0]), note))
    setting = {"examples": 60, "part_examples": 30}
    (folder / part_files.SETTING).write_text(json.dumps(setting))
    (folder / part_files.FAILED).touch()
    return folder, rows


WRONG = [None, True, -1, 10**30, 1.5, "", "30", [], {}]


@pytest.mark.parametrize("field", ["examples", "part_examples"])
@pytest.mark.parametrize("value", [*WRONG, 0])
def test_a_wrong_setting_is_named(embedded, field, value):
    folder, _ = embedded
    setting = {"examples": 60, "part_examples": 30, field: value}
    (folder / part_files.SETTING).write_text(json.dumps(setting))
    with pytest.raises(DataError) as caught:
        part_files.part_files("parts", str(folder))
    assert f"setting.json: expected the setting of a folder of parts: {field}=" in str(caught.value)
    assert f"{field}={value!r}: expected an integer" in str(caught.value)


def test_a_setting_of_very_many_examples_takes_no_memory(embedded):
    folder, _ = embedded
    setting = {"examples": 10**12, "part_examples": 30}
    (folder / part_files.SETTING).write_text(json.dumps(setting))
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=r"has finished: part 2 is missing"):
            part_files.part_files("parts", str(folder))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("about", "told"),
    [
        *(({"first": value}, f"first={value!r}: expected an integer >= 30") for value in WRONG),
        *(({"examples": value}, f"examples={value!r}: expected an integer") for value in WRONG),
        *(({"failed": value}, f"failed={value!r}: expected a list") for value in (None, 1, "", {})),
        *(({"failed": [value]}, f"failed[0]={value!r}: expected an integer") for value in WRONG),
        ({"first": 29}, "first=29: expected an integer >= 30"),
        (
            {"examples": 10**12},
            "examples=1000000000000: expected 30, the rows and those that failed",
        ),
        ({"examples": 31, "failed": [30, 30]}, "failed holds 30 twice"),
    ],
)
def test_a_wrong_note_of_a_part_is_named(embedded, about, told):
    folder, rows = embedded
    note = {"first": 30, "examples": 30, "failed": [], **about}
    save(folder / "part-00001.npz", Embeddings(rows[29:59], np.arange(30), note))
    paths = part_files.part_files("parts", str(folder))
    with pytest.raises(DataError, match=r"part-00001\.npz: expected a part that") as caught:
        list(part_files.read_rows("parts", paths))
    assert told in str(caught.value)


def test_parts_of_other_dimensions_are_named(parts):
    folder, rows = parts
    save(folder / "part-00002.npz", Embeddings(rows[:, :9], np.arange(60), {}))
    with pytest.raises(DataError, match=r"part-00002.npz: 9 dimensions: expected 16"):
        list(part_files.read_rows("parts", part_files.part_files("parts", str(folder))))


def test_labels_of_far_ids_take_no_memory(embedded):
    folder, rows = embedded
    note = {"first": 2**60, "examples": 30, "failed": []}
    save(folder / "part-00001.npz", Embeddings(rows[29:59], np.arange(30) + 7, note))
    exported = open_rows(folder)
    ids = np.array([4, 2**60 + 29])
    assert [one["label"] for one in exported.payloads_of(ids)] == [3, 36]


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
    command = [sys.executable, "-m", "sparse_embed.experiments.export_index", "--to=shards"]
    command += [f"--source={folder}", f"--index_folder={tmp_path / 'index'}", "--shards=4"]
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
    # As a kill right after the last rename leaves it; the call again is refused, but tidies up.
    before = sorted((tmp_path / "index").iterdir())
    for name in (shard_folder.MANIFEST, "change"):
        unfinished(tmp_path / "index" / name).parent.mkdir()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "expected a folder without a sharded index" in done.stderr
    assert sorted((tmp_path / "index").iterdir()) == before
