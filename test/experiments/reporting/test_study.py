import json
import re

import numpy as np
import pytest

from sparse_embed.common.failures import DataError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.reporting import page, selection, study
from sparse_embed.experiments.reporting.selection import NotMeasured

LABELS = np.arange(5, dtype=np.int16)


@pytest.fixture
def run(tmp_path):
    """A reproduction of two architectures; a function makes records of one."""

    def make(architecture, method, hits):
        key = {
            **{"experiment": "verification", "data": "words", "method": method},
            **{"setting": {"dims": 4}, "flags": {"k": 9, "train": {"steps": 7}}},
        }
        folder = tmp_path / "run" / architecture / selection.RECORDS
        folder.mkdir(parents=True, exist_ok=True)
        raw = {"labels": LABELS, "hits": np.array(hits, np.uint8)}
        records.update(folder, key, [], lambda: ({"accuracy": 0.5}, raw))

    make("convnet", "pca", [0, 1])
    make("convnet", "lsh", [0, 1])
    make("resnet8", "pca", [2])
    return make


def content(folder):
    """All records by architecture and name, with their raw results as lists."""
    found = {}
    for record in selection.load(folder):
        kept = {key: value for key, value in record.items() if key not in ("folder", "arrays")}
        raw = {name: (array.dtype, *array) for name, array in selection.arrays(record).items()}
        found[record["architecture"], record["name"]] = kept, raw
    return found


def test_a_study_holds_the_records_of_the_run_and_what_they_share_once(run, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    page.publish(tmp_path / "run", kept)
    assert content(kept) == content(tmp_path / "run")
    kinds = [next(iter(json.loads(line))) for line in (kept / study.RECORDS).open()]
    assert kinds == ["provenance", "train", "record", "record", "record"]
    with np.load(kept / study.ARRAYS) as arrays:
        assert len(arrays.files) == 3  # the labels and one array of hits are shared

    # A study can be published again, and in place of another.
    page.publish(kept, kept)
    assert content(kept) == content(tmp_path / "run")
    run("resnet8", "pca", [3])
    run("resnet8", "sdh", [4])
    page.publish(tmp_path / "run", kept)
    assert content(kept) == content(tmp_path / "run")
    assert len(content(kept)) == 4
    page.publish(tmp_path / "run" / "resnet8", kept)
    assert content(kept) == content(tmp_path / "run" / "resnet8")
    with np.load(kept / study.ARRAYS) as arrays:
        assert len(arrays.files) == 3


def test_an_interrupted_publication_leaves_the_study_as_it_was(run, tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    kept.mkdir()
    page.publish(tmp_path / "run", kept)
    before = content(kept)
    run("resnet8", "sdh", [4])
    step = study.atomic_path

    def killed(path):
        if path.name == study.RECORDS:
            raise KeyboardInterrupt
        return step(path)

    monkeypatch.setattr(study, "atomic_path", killed)
    with pytest.raises(KeyboardInterrupt):
        page.publish(tmp_path / "run" / "resnet8", kept)
    assert content(kept) == before


def test_damage_is_refused_by_file_and_line(run, tmp_path):
    page.publish(tmp_path / "run", tmp_path)
    path = tmp_path / study.RECORDS
    *heads, line, _, _ = path.read_text().splitlines()
    record = json.loads(line)["record"]
    changed = [
        *(" ", "{", "[]", "{}", '{"other": {}}', '{"record": 3}'),
        *(
            json.dumps({"record": record | change})
            for change in (
                *({"experiment": 3}, {"architecture": None}, {"arrays": {"hits": 3}}),
                *({"arrays": 3}, {"provenance": 7}, {"time": 3}, {"flags": {"train": 9}}),
                {"flags": None},
            )
        ),
        *(
            json.dumps({"record": {k: v for k, v in record.items() if k != key}})
            for key in record.keys() - {"flags", "accuracy", "fingerprint"}
        ),
    ]
    for bad in changed:
        path.write_text("\n".join([*heads, bad]))
        with pytest.raises(DataError, match=re.escape(f"{path}:3: ")):
            selection.load(tmp_path)


def test_raw_results_that_are_gone_were_not_measured(run, tmp_path):
    page.publish(tmp_path / "run", tmp_path)
    record = selection.load(tmp_path)[0]
    with pytest.raises(NotMeasured, match="raw results scores"):
        selection.arrays(record, "labels", "scores")
    (tmp_path / study.ARRAYS).unlink()
    with pytest.raises(NotMeasured, match=r"raw results records\.npz"):
        selection.arrays(record)
