import json

import numpy as np
import pytest

from sparse_embed.experiments.evaluation import records


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


def test_only_what_changed_is_made_again(case, capsys):
    folder, source, made, make = case
    key = {"experiment": "megaface", "method": "pca", "setting": {"dims": 48}}
    assert records.update(folder, "a", key, [source], make)
    assert "a: recall_at_1 0.6" in capsys.readouterr().out
    assert not records.update(folder, "a", dict(reversed(key.items())), [source], make)
    assert "a: unchanged" in capsys.readouterr().out
    source.write_bytes(b"two")
    assert records.update(folder, "a", key, [source], make)
    assert records.update(folder, "a", key | {"flags": {"k": 10}}, [source], make)
    assert records.update(folder, "b", key | {"experiment": "cifar100"}, [source], make)
    assert len(made) == 4
    found = records.load(folder)
    assert [record["name"] for record in found] == ["a", "b"]
    assert found[0]["recall_at_1"] == pytest.approx(0.8)
    assert found[0]["flags"] == {"k": 10}
    assert found[0]["provenance"]["versions"]["numpy"] == np.__version__
    assert [record["name"] for record in records.load(folder, "cifar100")] == ["b"]
    np.testing.assert_array_equal(records.load_arrays(folder, found[0])["ranks"], [0, 1, 2])


def test_a_failure_leaves_the_old_record(case):
    folder, source, _, make = case
    records.update(folder, "a", {"experiment": "x"}, [source], make)
    before = (folder / "a.json").read_text()

    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        records.update(folder, "a", {"experiment": "y"}, [source], fail)
    assert (folder / "a.json").read_text() == before
    assert json.loads(before)["experiment"] == "x"
    assert {path.name for path in folder.iterdir()} == {"a.json", "a.npz", "input.npy"}


def test_names_are_safe_and_tell_settings_apart():
    assert records.record_name("megaface", "ivfpq", "nprobe=50", "") == "megaface-ivfpq-nprobe=50"
    assert records.record_name("a/b c", 0.25) == "a_b_c-0.25"
