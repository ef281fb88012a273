"""Steps end once: killed in the middle, changed, failed."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from helpers import options_of

from sparse_embed.common.failures import DataError, Failure, MachineError
from sparse_embed.experiments.orchestration import (
    cifar100_plan,
    makers,
    paper_plan,
    paper_size,
    plans,
    steps,
)
from sparse_embed.flags import app

# Three steps, of which the second waits for a file the first time it is run.
DRIVER = """
import pathlib, sys
from sparse_embed.experiments.orchestration import steps
folder = pathlib.Path(sys.argv[1])
def step(name, more=""):
    code = (
        "import pathlib, sys, time; folder = pathlib.Path(sys.argv[1]); "
        f"(folder / 'ran').open('a').write('{name} '); {more}"
        f"(folder / '{name}').write_text('made')"
    )
    needs = {"two": ("one",), "three": ("two",)}.get(name, ())
    return steps.Step(name, ("-c", code, str(folder)), (folder / name,), 1.0, needs)
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
    shown = finish(start(tmp_path)).splitlines()
    assert [line.split(":")[0] for line in shown[:2]] == ["two", "three"]  # a line for each step
    assert shown[2].endswith("done")
    assert (tmp_path / "ran").read_text() == "one two two three "
    finish(start(tmp_path))
    assert (tmp_path / "ran").read_text() == "one two two three "  # nothing is left to do
    done = json.loads((tmp_path / steps.STEPS).read_text())
    assert list(done) == ["one", "two", "three"]
    assert all(step["seconds"] >= 0 for step in done.values())


def test_bars_of_a_step_are_lines_of_its_log(tmp_path):
    code = """
from sparse_embed.common.progress import progress_bar
with progress_bar(total=5000, desc="counting") as bar:
    for n in range(5000):
        bar.update()
        bar.set_postfix(n=n)
"""
    steps.run_all([steps.Step("count", ("-c", code), (), 1.0)], tmp_path)
    said = (tmp_path / steps.LOGS / "count.log").read_bytes()
    assert said.startswith(b"$ python -c")
    assert said.count(b"counting:") == 1
    assert said.endswith(b"n=4999]\n")
    assert b"\r" not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_signal_reaches_the_step_and_the_next_call_goes_on(tmp_path, number):
    """It is sent to the process alone, not to its group, as `kill` does."""
    process = start(tmp_path)
    wait_for(tmp_path, "one two ")
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert f"Interrupted: stopped by {number.name} in step 'two'; call again" in output
    (tmp_path / "go").touch()
    finish(start(tmp_path))
    assert (tmp_path / "ran").read_text() == "one two two three "


# One step, a training run, which is told to stop, and goes on the next time.
TRAINING = """
import pathlib, sys
from sparse_embed.experiments.orchestration import steps
folder = pathlib.Path(sys.argv[1])
flags = ["--dataset=dense_embeddings", f"--data_dir={sys.argv[2]}", "--model=linear"]
flags += ["--embedding_dim=16", "--width=0.03", "--batch_size=32", "--steps=1000"]
flags += ["--summary_every=100", "--checkpoint_every=100", "--model_dir", folder / "run"]
train = steps.script("train", ["train", *flags], [folder / "run" / "train.json"], 10)
from sparse_embed.flags import app
from sparse_embed.flags.options.sparsify import Options
sys.argv = sys.argv[:1]
app.run(lambda _: steps.run_all([train], folder), Options)
"""


def test_stopped_training_goes_on_from_the_step_it_had_reached(vectors, tmp_path):
    command = [sys.executable, "-c", TRAINING, str(tmp_path), str(vectors)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoints" / "last.weights.h5").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143, errors
    assert "stopped by SIGTERM in step 'train'; call again to go on from there" in errors
    (log,) = (tmp_path / "logs").glob("*.log")
    (reached,) = map(int, re.findall(r"stopped by SIGTERM at step (\d+) of 1000", log.read_text()))
    assert 100 <= reached < 1000
    subprocess.run(command, check=True, timeout=300)
    assert f" {reached}/1000 [" in log.read_text().split("$ python")[2]
    curves = json.loads((tmp_path / "run" / "train.json").read_text())["curves"]
    assert [row["step"] for row in curves] == list(range(100, 1001, 100))


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


NEEDS = {"b": ("a",), "c": ("b",)}  # d needs nothing


def simple(folder, name, code="pass", version=""):
    command = ("-c", f"{code}; open({str(folder / name)!r}, 'a').write('x')", version)
    return steps.Step(name, command, (folder / name,), 1.0, NEEDS.get(name, ()))


def counts(folder, names="abc"):
    return [len((folder / name).read_text()) for name in names]


def test_what_needs_a_changed_step_is_run_again_and_nothing_else(tmp_path):
    steps.run_all([simple(tmp_path, name) for name in "abcd"], tmp_path)
    assert counts(tmp_path, "abcd") == [1, 1, 1, 1]
    changed = [simple(tmp_path, name, version="new" * (name == "b")) for name in "abcd"]
    steps.run_all(changed, tmp_path)
    assert counts(tmp_path, "abcd") == [1, 2, 2, 1]
    (tmp_path / "c").unlink()
    steps.run_all(changed, tmp_path)
    assert counts(tmp_path, "abcd") == [1, 2, 1, 1]


def test_what_was_run_before_a_step_that_it_needs_is_not_done(tmp_path):
    """b is run again alone, by another list of steps: c has not seen that b."""
    all_steps = [simple(tmp_path, name) for name in "abc"]
    steps.run_all(all_steps, tmp_path)
    (tmp_path / "b").unlink()
    steps.run_all(all_steps[:2], tmp_path)
    assert [step.name for step in steps.todo(all_steps, done(tmp_path))] == ["c"]


def done(folder):
    return json.loads((folder / steps.STEPS).read_text())


def test_file_times_do_not_count(tmp_path):
    all_steps = [simple(tmp_path, name) for name in "abc"]
    steps.run_all(all_steps, tmp_path)
    for number, path in enumerate([tmp_path / "c", tmp_path / "a", tmp_path / "b"]):
        os.utime(path, (2e9 + number, 2e9 + number))
    assert steps.todo(all_steps, done(tmp_path)) == []


def test_a_star_stands_for_any_name(tmp_path):
    code = f"open({str(tmp_path / 'record-7.json')!r}, 'w')"
    step = steps.Step("s", ("-c", code), (tmp_path / "record-*.json",), 1.0)
    steps.run_all([step], tmp_path)
    assert steps.todo([step], done(tmp_path)) == []
    (tmp_path / "record-7.json").unlink()
    assert steps.todo([step], done(tmp_path)) == [step]


def test_notes_of_an_earlier_version_count_as_not_done(tmp_path):
    step = simple(tmp_path, "a")
    (tmp_path / "a").write_text("x")
    old = {"a": {"command": list(step.arguments), "seconds": 1.0}}
    assert steps.todo([step], old) == [step]


def test_a_step_that_the_machine_stopped_ends_all_with_its_code(tmp_path):
    full = simple(tmp_path, "b", code=f"import sys; sys.exit({MachineError.exit_code})")
    with pytest.raises(MachineError, match="step 'b' ended with exit code 4"):
        steps.run_all([full], tmp_path)


def test_failures_show_the_log_and_are_run_again(tmp_path, capsys):
    bad = simple(tmp_path, "b", code="import sys; print('the reason'); sys.exit(7)")
    with pytest.raises(Failure, match=r"step 'b' ended with exit code 7; see .*b\.log"):
        steps.run_all([simple(tmp_path, "a"), bad, simple(tmp_path, "c")], tmp_path)
    assert "the reason" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
    steps.run_all([simple(tmp_path, name) for name in "abc"], tmp_path)
    assert counts(tmp_path) == [1, 1, 1]


def test_a_step_without_its_file_has_failed(tmp_path):
    idle = steps.Step("idle", ("-c", "pass"), (tmp_path / "nothing",), 1.0)
    with pytest.raises(Failure, match=r"left no .*nothing"):
        steps.run_all([idle], tmp_path)


HUNGRY = """
import pathlib, sys
from sparse_embed.experiments.orchestration import steps
folder = pathlib.Path(sys.argv[1])
hold = "bytearray(b'x') * (600 << 20)"
child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
codes = {"a": "pass", "b": hold, "c": "pass", "d": child}
steps.run_all([steps.Step(name, ("-c", c), (folder,), 1.0) for name, c in codes.items()], folder)
"""


def test_peak_memory_of_each_step_is_told_and_kept(tmp_path):
    """Of four steps the second holds 600 MiB, and so does a process that the fourth waits for.

    They are started by a small process: Linux tells no less than what that holds itself.
    """
    for call in ("first", "again"):
        command = [sys.executable, "-c", HUNGRY, str(tmp_path)]
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        peaks = {name: entry["peak_bytes"] / 2**20 for name, entry in done(tmp_path).items()}
        for name in "bd":
            assert 600 < peaks[name] < 700
        for name in "ac":
            assert 1 < peaks[name] < 300
        assert re.search(r"largest peak memory: 0\.6 GiB, step '[bd]'", result.stderr)
        told = re.findall(r"^\W*(.): \d+ s, peak memory (.*) GiB", result.stderr, re.M)
        assert [name for name, _ in told] == (["a", "b", "c", "d"] if call == "first" else [])
        assert call == "again" or dict(told)["b"] == "0.6"


def test_estimate_follows_what_was_measured():
    """60 s of belief in the expectation: (60 + 240) / (60 + 60) = 2.5 times slower."""
    ended = [steps.Step("a", (), (), 60.0)]
    assert steps._pace(ended, {"a": {"seconds": 240.0}}) == pytest.approx(2.5)
    assert steps._pace([], {}) == 1
    assert steps._minutes(20) == "a minute"
    assert steps._minutes(600) == "10 min"
    assert steps._minutes(3 * 3600) == "3.0 h"


def all_plans(folder):
    data, _ = paper_plan.find_data(folder)
    sizes = makers.Sizes("glyphs", 4, 100, 20, seeds=(7,), keep="8,4:2")
    drawn = makers.draw(folder / "images", sizes)
    network = makers.Network((), (), {"flops": [1.0, 2.0], "l1": [0.5]}, 80)
    given = (network, sizes, drawn, (3, 3), "sparse", ["--batch_size=4"])
    return {
        "quick": plans.quick(folder),
        "full": plans.full(folder),
        "paper": paper_plan.paper(folder, data),
        "rehearsal": paper_plan.paper(folder, data, paper_size.REHEARSAL),
        "glyphs": [drawn, *plans.compare(folder / "convnet", 7, *given)],
        "cifar100": cifar100_plan.cifar100(folder, folder / "archive", ["fast_l1", "sdh_k2"]),
    }


@pytest.mark.parametrize("name", ["quick", "full", "paper", "rehearsal", "glyphs", "cifar100"])
def test_steps_of_every_plan_name_flags_that_exist(name, tmp_path):
    """Every script that a step runs knows the step's flags and takes their values."""
    found = all_plans(tmp_path)[name]
    assert len({step.name for step in found}) == len(found)
    for step in found:
        module, *given = step.arguments[1:]
        app.parse(options_of(importlib.import_module(module)), given)  # raises


def test_planning_leaves_no_trace_and_steps_come_after_what_they_need(tmp_path):
    for plan in all_plans(tmp_path).values():
        seen = set()
        for step in plan:
            assert set(step.needs) <= seen, step.name
            seen.add(step.name)
            assert step.outputs, step.name
            # A file below the folder that a step reads is made by a step that it needs.
            makers = {str(out): other.name for other in plan for out in other.outputs}
            for argument in step.arguments:
                for path in argument.partition("=")[2].split(","):
                    if path in makers and path not in map(str, step.outputs):
                        assert makers[path] in step.needs, (step.name, path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b'{"a": 3}', b'{"a": {"command": 3}}'])
def test_damaged_notes_are_refused_by_name(tmp_path, content):
    (tmp_path / steps.STEPS).write_bytes(content)
    with pytest.raises(DataError, match=r"steps\.json: expected "):
        steps.run_all([simple(tmp_path, "a")], tmp_path)
