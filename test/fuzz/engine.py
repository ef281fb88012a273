"""Gives damaged inputs to readers in a process of their own, and keeps what goes wrong.

A case may crash or hang its process, or take too much memory: all of it is counted, and the input
saved after it has been made as small as possible. Case number i of a target depends on the seed
alone, not on time or on the number of processors.
"""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import Pipe
from typing import Any, NamedTuple

from fuzz.mutations import Parts, mutate
from fuzz.worker import Outcome

WRONG = ("crash", "hang", "exception", "memory")
_MAIN = "from fuzz import worker; worker.main()"
_TESTS = pathlib.Path(__file__).resolve().parents[1]
_MEMORY_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_CORPUS = 400  # inputs that mutations start from, at most


class Worker:
    """A process that runs cases; started when it is needed, and again when it is gone.

    Args:
        case_seconds: how long a case may take before it counts as hanging.
    """

    def __init__(self, case_seconds: float = 30.0):
        self._seconds = case_seconds
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-", dir=_MEMORY_FOLDER))
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def seeds(self, target: str) -> tuple[list[Parts], list[Outcome], list[bytes]]:
        """Returns the valid inputs of a target, what became of them, and its tokens."""
        answer = self._ask("seeds", target)
        if isinstance(answer, Outcome):
            raise RuntimeError(f"{target}: cannot be prepared: {answer.kind}\n{answer.detail}")
        return answer

    def run(self, target: str, parts: Parts) -> Outcome:
        """Runs one case."""
        outcome = self._ask("run", target, parts)
        if outcome.kind == "memory" or outcome.place.startswith("MemoryError"):
            self._stop()  # what it keeps of that memory would count for the next case
        return outcome

    def _ask(self, *request: Any) -> Any:
        starting = self._process is None
        if starting:
            self._start()
        try:
            self._connection.send(request)
            # The first request also imports the reader, perhaps with TensorFlow.
            if self._connection.poll(self._seconds + 120 * (starting or request[0] == "seeds")):
                return self._connection.recv()
        except (EOFError, ConnectionError):
            return self._crashed()
        self._stop()
        return Outcome("hang", "hang", f"no answer after {self._seconds:g} s", 0)

    def _crashed(self) -> Outcome:
        assert self._process is not None
        code = self._process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        log = (self._folder / "log").read_text(errors="replace")
        self._stop()
        # What faulthandler says of the thread that crashed, its innermost line first.
        lines = log.rpartition("Current thread")[2].splitlines()
        frames = [line.strip() for line in lines if line.startswith("  File")][:1]
        return Outcome("crash", " ".join([name, *frames]), f"{name}\n{log[-4000:]}", 0)

    def _start(self) -> None:
        shutil.rmtree(self._folder / "work", ignore_errors=True)
        (self._folder / "work").mkdir()
        ours, theirs = Pipe()
        search = [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(self._folder / "log", "w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(theirs.fileno()), self._folder / "work"],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search), "PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        theirs.close()
        self._connection = ours

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._connection.close()
            self._process = None


class Finding(NamedTuple):
    """Something that went wrong, with the smallest input that was found to do it."""

    target: str
    outcome: Outcome
    parts: Parts
    case: int

    def save(self, folder: pathlib.Path) -> pathlib.Path:
        """Writes the parts and what happened into a folder of its own, and returns it."""
        folder = folder / f"{self.target}-{self.outcome.kind}-{self.case}"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "parts").mkdir(parents=True)
        for name, content in self.parts.items():
            (folder / "parts" / name).write_bytes(content)
        (folder / "target").write_text(self.target)
        (folder / "what.txt").write_text(f"{self.outcome.place}\n\n{self.outcome.detail}\n")
        return folder


class Tally:
    """What was seen of a target."""

    def __init__(self, target: str):
        self.target = target
        self.cases = self.accepted = self.most_memory = 0
        self.counts = dict.fromkeys(WRONG, 0)
        self.findings: list[Finding] = []

    def row(self) -> dict[str, Any]:
        """The row of the table."""
        return {
            "target": self.target,
            "cases": self.cases,
            "accepted": self.accepted,
            "crashes": self.counts["crash"],
            "hangs": self.counts["hang"],
            "wrong_exceptions": self.counts["exception"],
            "memory_blow_ups": self.counts["memory"],
            "most_memory_mb": round(self.most_memory / 2**20, 1),
        }


def fuzz(
    worker: Worker,
    target: str,
    seed: int,
    *,
    cases: int | None = None,
    seconds: float | None = None,
    report: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Runs cases of one target until there were so many, or until the time is over.

    An input that is treated in a new way (accepted, or refused in another place) becomes a start of
    further mutations, so that damage goes deeper with time.

    Args:
        worker: where they run.
        target: name of a module in `targets`.
        seed: decides the cases.
        cases: how many.
        seconds: how long.
        report: called after each case.
    """
    tally = Tally(target)
    known: set[str] = set()
    corpus, outcomes, tokens = worker.seeds(target)  # imports the reader, which is not counted
    end = None if seconds is None else time.monotonic() + seconds
    originals = list(corpus)
    for number, (parts, outcome) in enumerate(zip(originals, outcomes, strict=True)):
        if outcome.kind == "refused":  # a seed is valid
            outcome = outcome._replace(kind="exception")
        _count(tally, worker, Finding(target, outcome, parts, -1 - number), known)
    number = 0
    while (cases is None or number < cases) and (end is None or time.monotonic() < end):
        rng = random.Random(f"{seed} {target} {number}")
        start = rng.choice(originals if rng.random() < 0.5 else corpus)
        parts = mutate(start, originals, tokens, rng)
        outcome = worker.run(target, parts)
        new = outcome.kind not in WRONG and outcome.place not in known
        if new and len(corpus) < _CORPUS:
            corpus.append(parts)
        _count(tally, worker, Finding(target, outcome, parts, number), known)
        number += 1
        report(tally)
    return tally


def _count(tally: Tally, worker: Worker, finding: Finding, known: set[str]) -> None:
    outcome = finding.outcome
    tally.cases += 1
    tally.accepted += outcome.kind == "accepted"
    tally.most_memory = max(tally.most_memory, outcome.growth)
    if outcome.kind in WRONG:
        tally.counts[outcome.kind] += 1
        if outcome.place not in known:
            tally.findings.append(minimise(worker, finding))
    known.add(outcome.place)


def minimise(worker: Worker, finding: Finding, runs: int = 300, seconds: float = 10.0) -> Finding:
    """Returns a smaller input that does the same, by cutting slices and zeroing bytes."""
    end = time.monotonic() + seconds
    best = finding

    def better(parts: Parts) -> bool:
        nonlocal best, runs
        runs -= 1
        if runs < 0 or time.monotonic() > end or finding.outcome.kind == "hang":
            return False
        outcome = worker.run(finding.target, parts)
        if outcome[:2] != finding.outcome[:2]:
            return False
        best = best._replace(outcome=outcome, parts=parts)
        return True

    for name in sorted(finding.parts):
        for fill in (b"", b"\0"):
            size = max(len(best.parts[name]), 1)
            while size >= 1:
                place = 0
                while place < len(data := best.parts[name]):
                    piece = data[place : place + size]
                    changed = data[:place] + fill * len(piece) + data[place + size :]
                    if changed == data or not better({**best.parts, name: changed}) or fill:
                        place += size
                size //= 2
    return best
