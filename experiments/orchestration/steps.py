"""Steps that are run one after the other, each a process of its own, and never twice.

`run_all` runs a list of steps with one progress bar. A step is *done* if it has ended with the same
command, its files are there, and no step that it needs has been run since; that is all that counts,
file times do not. What has ended is written down in `steps.json` with its command, its duration and
the peak memory of its process. A kill at any moment loses nothing but the step under way, and what
that step itself keeps: training goes on from its last checkpoint.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from sparse_embed.common.failures import Failure, MachineError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.signals import Interrupted, noted
from sparse_embed.experiments.core.notes import STEPS, read_done

LOGS = "logs"
_GIB = 2**30
_PRIOR = 60.0  # seconds of belief in the expected durations, against what was measured


@dataclasses.dataclass(frozen=True)
class Step:
    """Something to run.

    Attributes:
        name: tells it from all others.
        arguments: of the Python interpreter.
        outputs: files that are there when it has ended; a * in a name stands for anything.
        seconds: how long it takes, about; only the ratios between steps matter for long.
        needs: names of the steps whose files it reads.
    """

    name: str
    arguments: tuple[str, ...]
    outputs: tuple[pathlib.Path, ...]
    seconds: float
    needs: tuple[str, ...] = ()


def script(
    name: str,
    arguments: list[Any],
    outputs: list[pathlib.Path],
    seconds: float,
    needs: list[Step] | None = None,
) -> Step:
    """Returns the step that runs a script of this package: its name, then its flags."""
    module, *given = map(str, arguments)
    command = ("-m", f"sparse_embed.experiments.{module}", *given)
    return Step(name, command, tuple(outputs), seconds, tuple(step.name for step in needs or []))


def run_all(steps: list[Step], run_dir: pathlib.Path) -> None:
    """Runs the steps that are not done yet; Failure, with the end of its log, if one fails.

    Prints the time and peak memory of each, and at the end the largest peak of all.
    """
    with _lock(run_dir) as lock:
        path = run_dir / STEPS
        done = read_done(path) if path.exists() else {}
        waiting = {step.name: step for step in todo(steps, done)}
        ended = [step for step in steps if step.name not in waiting]
        total = sum(step.seconds for step in steps)
        bar_format = "{percentage:3.0f}%|{bar:30}| {desc}"
        with progress_bar(total=total, bar_format=bar_format) as bar:
            for step in waiting.values():
                pace = _pace(ended, done)

                def show(elapsed: float, step: Step = step, pace: float = pace) -> None:
                    expected = pace * step.seconds
                    later = sum(s.seconds for s in steps if s not in ended and s is not step)
                    left = pace * later + max(expected - elapsed, 0.05 * expected)
                    part = step.seconds * min(elapsed / expected, 0.95)
                    bar.n = sum(s.seconds for s in ended) + part
                    place = f"[{len(ended) + 1}/{len(steps)}]"
                    bar.set_description_str(f"{place} {step.name}, about {_minutes(left)} left")

                seconds, peak = _run(step, run_dir, lock, show)
                # The last entry has the highest number: a step's number tells when it was run.
                number = 1 + max((entry.get("number", 0) for entry in done.values()), default=0)
                done.pop(step.name, None)
                done[step.name] = {
                    "command": list(step.arguments),
                    "seconds": round(seconds, 1),
                    "peak_bytes": peak,
                    "number": number,
                    "after": {name: done[name]["number"] for name in step.needs},
                }
                with atomic_path(path) as temporary:
                    temporary.write_text(json.dumps(done, indent=1))
                ended.append(step)
                line = f"{step.name}: {seconds:.0f} s, peak memory {peak / _GIB:.1f} GiB"
                bar.write(line, file=sys.stderr)
            bar.n = total
            bar.set_description_str("done")
        print(largest_peak(steps, done), file=sys.stderr)


def largest_peak(steps: list[Step], done: dict[str, Any]) -> str:
    """Returns a line on the step whose process took the most memory."""
    peaks = {step.name: done.get(step.name, {}).get("peak_bytes", 0) for step in steps}
    name = max(peaks, key=peaks.__getitem__)
    return f"largest peak memory: {peaks[name] / _GIB:.1f} GiB, step '{name}'"


def todo(steps: list[Step], done: dict[str, Any]) -> list[Step]:
    """Returns the steps that are not done: changed, without their files, or needing such a step.

    Args:
        steps: in an order in which they can be run.
        done: what `steps.json` says.
    """
    found: dict[str, Step] = {}
    for step in steps:
        entry = done.get(step.name, {})
        if (
            entry.get("command") != list(step.arguments)
            or not all(map(_is_there, step.outputs))
            or any(name in found for name in step.needs)
            or entry.get("after") != {name: done[name]["number"] for name in step.needs}
        ):
            found[step.name] = step
    return list(found.values())


def _is_there(output: pathlib.Path) -> bool:
    return any(output.parent.glob(output.name)) if "*" in output.name else output.exists()


def _pace(ended: list[Step], done: dict[str, Any]) -> float:
    """Returns how much slower than expected this machine is, as far as can be told."""
    taken: float = sum(done[step.name]["seconds"] for step in ended)
    return (taken + _PRIOR) / (sum(step.seconds for step in ended) + _PRIOR)


def _minutes(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "a minute"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _run(step: Step, run_dir: pathlib.Path, lock: int, show: Any) -> tuple[float, int]:
    """Runs a step with its output in a log, telling `show` the seconds so far.

    Returns:
        Seconds, and the largest resident set of its process or of one that this waited for, in
        bytes; Linux never tells less than we had ourselves when we started it.
    """
    log = run_dir / LOGS / f"{step.name.replace(' ', '_')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with open(log, "ab") as file:
        file.write(f"$ python {shlex.join(step.arguments)}\n".encode())
        file.flush()
        # The step holds the lock too: should we be killed, nobody else starts before it has ended.
        command = [sys.executable, *step.arguments]
        process = subprocess.Popen(command, stdout=file, stderr=file, pass_fds=[lock])
        shown = -1.0
        with noted() as wish:
            # Not `process.wait`, which does not tell the memory.
            while not (found := os.wait4(process.pid, os.WNOHANG))[0]:
                if (elapsed := time.perf_counter() - start) >= shown + 1:
                    show(shown := elapsed)
                time.sleep(0.05)
                if wish.received is not None:
                    # The step may have got the signal too; a SIGTERM more changes nothing then.
                    process.terminate()
                    process.wait()
                    what = f"stopped by {wish.received.name} in step '{step.name}'"
                    raise Interrupted(wish.received, f"{what}; call again to go on from there")
        process.returncode = os.waitstatus_to_exitcode(found[1])
    unit = 1 if sys.platform == "darwin" else 1024
    peak = found[2].ru_maxrss * unit
    missing = [str(output) for output in step.outputs if not _is_there(output)]
    if process.returncode or missing:
        tail = log.read_text(errors="replace").replace("\r", "\n").splitlines()[-12:]
        print("", *tail, sep="\n", file=sys.stderr)
        what = f"ended with exit code {process.returncode}"
        if not process.returncode:
            what = f"left no {', '.join(missing)}"
        kind = MachineError if process.returncode == MachineError.exit_code else Failure
        raise kind(f"step '{step.name}' {what}; see {log}; call again to go on from there")
    return time.perf_counter() - start, peak


@contextlib.contextmanager
def _lock(run_dir: pathlib.Path) -> Iterator[int]:
    """Waits until no other call, nor a step of one that was killed, is at work in the folder."""
    with open(run_dir / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{run_dir}: waiting for a step of an earlier call to end", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
