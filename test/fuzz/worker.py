"""The process that runs the cases, started by the engine.

It answers one request at a time: ("seeds", target) with the target's valid inputs, and
("run", target, parts) with an `Outcome`. It may die of a case; the engine notices.
"""

import contextlib
import faulthandler
import importlib
import os
import pathlib
import resource
import shutil
import sys
import traceback
import types
from multiprocessing.connection import Connection
from typing import NamedTuple

from fuzz.mutations import Parts

ADDRESS_SPACE = 2 << 30  # what a case may reserve, beside what the process has
ALLOWANCE, FACTOR = 64 << 20, 40  # what a case may touch: this, and so much per byte of its input


class Outcome(NamedTuple):
    """What became of a case.

    Attributes:
        kind: "accepted", "refused" (by an exception that is allowed), or what is wrong: "exception"
            (any other), "memory", and from the engine "crash" and "hang".
        place: tells findings apart: the exception and the lines that it passed through.
        detail: the exception with its traceback, or what else there is to say.
        growth: bytes by which the resident memory grew at its peak.
    """

    kind: str
    place: str
    detail: str
    growth: int


def memory(field: str) -> int:
    """Bytes of a field of /proc/self/status; 0 where there is none."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith(f"{field}:"):
                return 1024 * int(line.split()[1])
    return 0


def reset_peak() -> None:
    """Lets the peak of the resident memory (VmHWM) begin at what is resident now."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def limit_memory() -> None:
    """Limits the address space to what it is now and `ADDRESS_SPACE` more."""
    size = memory("VmSize")
    if size:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (size + ADDRESS_SPACE, hard))


def run(target: types.ModuleType, parts: Parts, folder: pathlib.Path) -> Outcome:
    """Gives one input to the reader."""
    folder.mkdir()
    size = sum(map(len, parts.values()))
    reset_peak()
    before = memory("VmRSS")
    kind, place, detail = "accepted", "", ""
    try:
        target.attempt(parts, folder)
    except getattr(target, "ALLOWED", (ValueError, OSError)) as error:
        kind, place, detail = "refused", _place(error), str(error)[:1000]
    except Exception as error:
        kind, place = "exception", _place(error)
        detail = "".join(traceback.format_exception(error))
    growth = max(memory("VmHWM") - before, 0)
    if kind in ("accepted", "refused") and growth > ALLOWANCE + FACTOR * size:
        kind, detail = "memory", f"{growth >> 20} MB for an input of {size} bytes; {kind} {place}"
        place = f"memory {place}"
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(kind, place, detail, growth)


def _place(error: BaseException) -> str:
    """The exception and its way through this project; lines of other projects do not tell apart."""
    lines = [
        f"{pathlib.Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and "/lib/python" not in frame.filename
    ]
    return " ".join([type(error).__name__, *lines[1:]])


def serve(connection: Connection, folder: pathlib.Path) -> None:
    """Answers requests until the engine hangs up."""
    name, target = None, None
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        if request[1] != name:  # another target: imported and tried before memory is measured
            name, target = request[1], importlib.import_module(f"fuzz.targets.{request[1]}")
            resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
            seeds = target.seeds()
            for seed in seeds:
                run(target, seed, folder / "seed")
            outcomes = [run(target, seed, folder / "seed") for seed in seeds]
            limit_memory()
        if request[0] == "seeds":
            connection.send((seeds, outcomes, list(getattr(target, "TOKENS", ()))))
        else:
            connection.send(run(target, request[2], folder / "case"))


def main() -> None:
    """The arguments are the number of the connection and a folder to work in."""
    faulthandler.enable()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    serve(Connection(int(sys.argv[1])), pathlib.Path(sys.argv[2]))
