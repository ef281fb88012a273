"""Studies in one file."""

import json
import pathlib

import pytest
import study_file

from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app

RESULTS = pathlib.Path(__file__).parents[1] / "results"


def call(*words):
    study_file.main(app.parse(study_file.Options, words))


def test_what_is_put_is_taken_out_again(tmp_path):
    study = f"--study={tmp_path / 'study.jsonl'}"
    contents = {"a": {"records": [{"x": 0.1}]}, "b": {"records": [], "more": None}}
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    call(study, f"--put={tmp_path / 'a.json'},{tmp_path / 'b.json'}")
    contents["a"] = {"records": [{"x": 1e-300}]}
    (tmp_path / "a.json").write_text(json.dumps(contents["a"]))
    call(study, f"--put={tmp_path / 'a.json'}")
    call(study, f"--take={tmp_path / 'taken'}")
    taken = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "taken").iterdir()}
    assert taken == contents
    with pytest.raises(UsageError, match="expected one of --put and --take"):
        call(study)


@pytest.mark.parametrize("path", RESULTS.glob("*.jsonl"), ids=lambda path: path.stem)
def test_recorded_studies_have_records_and_say_where_they_are_from(path):
    for name, content in study_file.load(path).items():
        assert content.get("records") or content["encoders"], name
        assert content["provenance"]["hardware"], name
