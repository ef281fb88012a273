"""Some cases of each fuzzer, always the same ones, and the engine on a reader with every fault.

`make fuzz` goes on for as long as one likes.
"""

import pathlib
import subprocess
import sys

import pytest
from fuzz import targets
from fuzz.engine import Finding, Worker, fuzz, minimise

CASES = {"pickles": 600, "recordio": 200, "packs": 200, "queries": 150, "tfrecords": 40}
FOLDER = pathlib.Path(__file__).parent / "targets"


@pytest.fixture(scope="module")
def worker():
    with Worker() as made:
        yield made


def test_every_target_is_listed():
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "faulty"}
    assert modules == {*targets.NAMES}


@pytest.mark.parametrize("target", targets.NAMES)
def test_damaged_input_is_refused_or_harmless(worker, target, tmp_path):
    tally = fuzz(worker, target, seed=0, cases=CASES.get(target, 80))
    said = [
        f"{finding.save(tmp_path)}: {finding.outcome.place}\n{finding.outcome.detail[-600:]}"
        for finding in tally.findings
    ]
    assert not said, "\n".join(said)
    assert 0 < tally.accepted <= tally.cases


@pytest.mark.parametrize(
    ("content", "kind", "place"),
    [
        (b"\0", "accepted", ""),
        (b"x", "refused", "ValueError"),
        (b"exception", "exception", "KeyError"),
        (b"memory", "memory", "memory"),
        (b"reserve", "exception", "MemoryError"),
        (b"crash", "crash", "SIGSEGV"),
        (b"hang", "hang", "hang"),
    ],
)
def test_every_fault_is_noticed_and_the_next_case_runs(content, kind, place):
    with Worker(case_seconds=1 if kind == "hang" else 30) as own:
        own.seeds("faulty")
        outcome = own.run("faulty", {"file": content})
        assert outcome.kind == kind
        assert outcome.place.startswith(place)
        assert own.run("faulty", {"file": b"\0"}).kind == "accepted"


def test_faults_are_found_by_mutation_and_made_small(worker):
    tally = fuzz(worker, "faulty", seed=1, cases=60)
    smallest = {next(iter(finding.parts.values())) for finding in tally.findings}
    assert b"exception" in smallest
    assert tally.counts["exception"] >= 1


def test_a_crash_is_made_small(worker):
    parts = {"file": bytes(30) + b"crash" + bytes(20)}
    finding = Finding("faulty", worker.run("faulty", parts), parts, 0)
    assert minimise(worker, finding, seconds=60).parts == {"file": b"crash"}


def test_the_command_prints_a_table_saves_findings_and_replays_them(tmp_path):
    command = [sys.executable, "-m", "fuzz", "--targets=pickles", "--jobs=1"]
    command += [f"--findings={tmp_path}", f"--json={tmp_path / 'table.json'}", "--cases=40"]
    folder = str(pathlib.Path(__file__).parents[1])
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()
    assert head.split()[:3] == ["target", "cases", "accepted"]
    assert row.split()[0] == "pickles"
    assert '"crashes": 0' in (tmp_path / "table.json").read_text()
    parts = {"file": b"exception"}
    with Worker() as own:
        kept = Finding("faulty", own.run("faulty", parts), parts, 7).save(tmp_path)
    command = [sys.executable, "-m", "fuzz", f"--replay={kept}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "KeyError: 'a place'" in done.stdout
