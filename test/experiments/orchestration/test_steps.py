"""Steps end once: killed in the middle, changed, failed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sparse_embed.experiments import reproduce, steps
from sparse_embed.flags import app

# Three steps, of which the second waits for a file the first time it is run.
DRIVER = """
import pathlib, sys
from sparse_embed.experiments import steps
folder = pathlib.Path(sys.argv[1])
def step(name, more=""):
    code = (
        "import pathlib, sys, time; folder = pathlib.Path(sys.argv[1]); "
        f"(folder / 'ran').open('a').write('{name} '); {more}"
        f"(folder / '{name}').write_text('made')"
    )
    return steps.Step(name, ("-c", code, str(folder)), (folder / name,), 1.0)
wait = "[time.sleep(0.05) for _ in range(600) if not (folder / 'go').exists()]; "
steps.run_all([step("one"), step("two", wait), step("three")], folder)
"""


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(folder, text):
    deadline = time.monotonic() + 60
    while not (folder / "ran").exists() or (folder / "ran").read_text() != text:
        assert time.monotonic() < deadline, "the step did not start"
        time.sleep(0.05)


def finish(process):
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


def test_killed_with_its_step_and_called_again(tmp_path):
    process = start(tmp_path)
    wait_for(tmp_path, "one two ")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(json.loads((tmp_path / steps.STEPS).read_text())) == ["one"]
    (tmp_path / "go").touch()
    assert "[2/3] two" in finish(start(tmp_path))
    assert (tmp_path / "ran").read_text() == "one two two three "
    finish(start(tmp_path))
    assert (tmp_path / "ran").read_text() == "one two two three "  # nothing is left to do
    done = json.loads((tmp_path / steps.STEPS).read_text())
    assert list(done) == ["one", "two", "three"]
    assert all(step["seconds"] >= 0 for step in done.values())


def test_killed_alone_its_step_ends_before_the_next_call_goes_on(tmp_path):
    process = start(tmp_path)
    wait_for(tmp_path, "one two ")
    process.kill()
    process.wait()
    again = start(tmp_path)
    assert "waiting for a step of an earlier call to end" in again.stdout.readline()
    assert (tmp_path / "ran").read_text() == "one two "
    (tmp_path / "go").touch()
    finish(again)
    assert (tmp_path / "ran").read_text() == "one two two three "


def simple(folder, name, code="pass", version=""):
    command = ("-c", f"{code}; open({str(folder / name)!r}, 'a').write('x')", version)
    return steps.Step(name, command, (folder / name,), 1.0)


def counts(folder):
    return [len((folder / name).read_text()) for name in ("a", "b", "c")]


def test_what_depends_on_a_changed_step_is_run_again(tmp_path):
    steps.run_all([simple(tmp_path, name) for name in "abc"], tmp_path)
    assert counts(tmp_path) == [1, 1, 1]
    changed = [simple(tmp_path, name, version="new" * (name == "b")) for name in "abc"]
    steps.run_all(changed, tmp_path)
    assert counts(tmp_path) == [1, 2, 2]
    (tmp_path / "c").unlink()
    steps.run_all(changed, tmp_path)
    assert counts(tmp_path) == [1, 2, 1]


def test_failures_show_the_log_and_are_run_again(tmp_path, capsys):
    bad = simple(tmp_path, "b", code="import sys; print('the reason'); sys.exit(7)")
    with pytest.raises(app.Failure, match=r"step 'b' ended with exit code 7; see .*b\.log"):
        steps.run_all([simple(tmp_path, "a"), bad, simple(tmp_path, "c")], tmp_path)
    assert "the reason" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
    steps.run_all([simple(tmp_path, name) for name in "abc"], tmp_path)
    assert counts(tmp_path) == [1, 1, 1]


def test_a_step_without_its_file_has_failed(tmp_path):
    idle = steps.Step("idle", ("-c", "pass"), (tmp_path / "nothing",), 1.0)
    with pytest.raises(app.Failure, match=r"left no .*nothing"):
        steps.run_all([idle], tmp_path)


def test_estimate_follows_what_was_measured():
    """60 s of belief in the expectation: (60 + 240) / (60 + 60) = 2.5 times slower."""
    ended = [steps.Step("a", (), (), 60.0)]
    assert steps._pace(ended, {"a": {"seconds": 240.0}}) == pytest.approx(2.5)
    assert steps._pace([], {}) == 1
    assert steps._minutes(20) == "a minute"
    assert steps._minutes(600) == "10 min"
    assert steps._minutes(3 * 3600) == "3.0 h"


@pytest.mark.parametrize("extent", ["quick", "full", "paper"])
def test_steps_of_every_extent_name_flags_that_exist(extent, tmp_path):
    """Every script that a step runs knows the step's flags and takes their values."""
    make = {"quick": reproduce.quick, "full": reproduce.full}.get(extent)
    found = make(tmp_path) if make else reproduce.paper(tmp_path, tmp_path)
    assert len({step.name for step in found}) == len(found)
    code = "import importlib; from absl import flags\n"
    for step in found:
        module, *given = step.arguments[1:]
        if given[0].startswith("--preset="):
            given[0] = f"--flagfile={app.preset_path(given[0].removeprefix('--preset='))}"
        code += f"importlib.import_module({module!r})\nflags.FLAGS(['script', *{given!r}])\n"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_paper_says_what_is_missing_and_where_to_put_it(tmp_path):
    data = tmp_path / "data"
    (data / "faces_emore").mkdir(parents=True)
    (data / "faces_emore" / "train.rec").touch()
    command = [sys.executable, "-m", "sparse_embed.experiments.reproduce", "--extent=paper"]
    command += [f"--data_root={data}", f"--run_dir={tmp_path / 'runs'}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    lines = result.stderr.strip().splitlines()
    assert f"missing: {data / 'megaface' / 'facescrub_aligned'} (folder of" in result.stderr
    assert "train.rec (" not in result.stderr
    assert len(lines) == len(reproduce.PAPER_DATA)  # all but one, and the summary
    assert not (tmp_path / "runs").exists()
