import json

import numpy as np
import pytest

from sparse_embed.common.failures import DataError
from sparse_embed.experiments.core import records


@pytest.fixture
def case(tmp_path):
    """A folder, an input file, and a function that counts how often it made a record."""
    made = []
    source = tmp_path / "input.npy"
    source.write_bytes(b"one")

    def make():
        made.append(len(made))
        return {"recall_at_1": 0.5 + len(made) / 10}, {"ranks": np.arange(3)}

    return tmp_path, source, made, make


KEY = {"experiment": "megaface", "data": "glyphs", "method": "pca", "setting": {"dims": 48}}
NAME = "megaface-glyphs-pca-dims=48"


def test_only_what_changed_is_made_again(case, capsys):
    folder, source, made, make = case
    assert records.update(folder, KEY, [source], make)
    assert f"{NAME}: recall_at_1 0.6" in capsys.readouterr().out
    assert not records.update(folder, dict(reversed(KEY.items())), [source], make)
    assert f"{NAME}: unchanged" in capsys.readouterr().out
    source.write_bytes(b"two")
    assert records.update(folder, KEY, [source], make)
    assert records.update(folder, KEY | {"flags": {"k": 10}}, [source], make)
    assert records.update(folder, KEY | {"experiment": "cifar100"}, [source], make)
    assert len(made) == 4
    found = records.load(folder)
    other = NAME.replace("megaface", "cifar100")
    assert [record["name"] for record in found] == [other, NAME]
    assert found[1]["recall_at_1"] == pytest.approx(0.8)
    assert found[1]["flags"] == {"k": 10}
    assert found[1]["provenance"]["versions"]["numpy"] == np.__version__
    assert [record["name"] for record in records.load(folder, "cifar100")] == [other]
    np.testing.assert_array_equal(records.load_arrays(folder, found[1])["ranks"], [0, 1, 2])


def test_a_failure_leaves_the_old_record(case):
    folder, source, _, make = case
    records.update(folder, KEY, [source], make)
    before = (folder / f"{NAME}.json").read_text()

    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        records.update(folder, KEY | {"flags": {"k": 1}}, [source], fail)
    assert (folder / f"{NAME}.json").read_text() == before
    assert {path.name for path in folder.iterdir()} == {f"{NAME}.json", f"{NAME}.npz", "input.npy"}


def test_names_are_safe_and_tell_settings_apart():
    key = {"experiment": "a/b", "data": "x y", "method": "ivfpq", "setting": {"nprobe": 50}}
    assert records.record_name(key, "") == "a_b-x_y-ivfpq-nprobe=50"
    assert records.record_name(key | {"distractors": 9}, "reranked") == (
        "a_b-x_y-9-ivfpq-nprobe=50-reranked"
    )


def test_damaged_records_are_refused_by_name(case):
    folder, source, _, make = case
    records.update(folder, KEY, [source], make)
    path = folder / f"{NAME}.json"
    whole = json.loads(path.read_text())
    for content in (b"", path.read_bytes()[:-40], b"\xff", b"[1]"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"48\.json: expected an evaluation record"):
            records.load(folder)
        with pytest.raises(DataError, match=r"48\.json: expected an evaluation record"):
            records.update(folder, KEY, [source], make)
    changes = {"experiment": 3, "setting": [], "name": "../other", "provenance": {"time": 3}}
    for key, value in changes.items():
        path.write_text(json.dumps(whole | {key: value}))
        with pytest.raises(DataError, match=r"48\.json: expected an evaluation record"):
            records.load(folder)
    path.write_text(json.dumps({key: value for key, value in whole.items() if key != "method"}))
    with pytest.raises(DataError, match=r"48\.json: 'method' is missing"):
        records.load(folder)
    path.write_text(json.dumps(whole))
    (record,) = records.load(folder)
    with pytest.raises(DataError, match=r"48\.json: 'recall_at_7' is missing"):
        record["recall_at_7"]
    arrays = folder / f"{NAME}.npz"
    with pytest.raises(DataError, match=r"48\.npz: 'scores' is missing"):
        records.load_arrays(folder, record)["scores"]
    arrays.write_bytes(arrays.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"48\.npz: expected the raw results of a record"):
        records.load_arrays(folder, record)
