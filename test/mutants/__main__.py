"""Puts small faults into the code, one at a time, and expects a test to fail: `make mutants`.

Every row of `table` is a fault with the test that finds it. It is applied to a temporary copy of
the tree; a fault in the compiled code is compiled there. The exit code is 1 unless all are found.

    PYTHONPATH=test python -m mutants --only=no_residual,guess_drops_ties --jobs=2
"""

import argparse
import concurrent.futures
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Sequence

from mutants.table import MUTANTS, Mutant

from sparse_embed.common.progress import progress_bar

ROOT = pathlib.Path(__file__).resolve().parents[2]
_LEFT_OUT = (".*", "__pycache__", "*.egg-info", "dist", "results", "runs")
_COMPILED = (".h", ".inc", ".pxi", ".pyx")
_SECONDS = 900  # no test takes that long unless the fault makes it hang
KILLED, SURVIVED = "killed", "SURVIVED"


class Copy:
    """A copy of the tree, which is imported in place of what is installed."""

    def __init__(self, folder: pathlib.Path):
        self.root = folder / "sparse_embed"
        ignored = shutil.ignore_patterns(*_LEFT_OUT)
        shutil.copytree(ROOT, self.root, ignore=ignored, symlinks=True)
        # No bytecode: that of a fault could pass for that of the code.
        more = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        self._environment = {**os.environ, **more, "SPARSE_EMBED_CFLAGS": "-O1"}

    def python(self, *arguments: str) -> subprocess.CompletedProcess:
        """Runs Python in the copy."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )

    def pytest(self, *arguments: str) -> tuple[subprocess.CompletedProcess, dict[str, int]]:
        """Runs tests of the copy in one process; returns how many failed, had errors, ..."""
        report = self.root.parent / "report.xml"
        report.unlink(missing_ok=True)
        options = ("-n0", "-m", "", "-p", "no:cacheprovider", "-rs", f"--junitxml={report}")
        done = self.python("-m", "pytest", *options, *arguments)
        if not report.exists():
            return done, {}
        (suite,) = xml.etree.ElementTree.parse(report).iter("testsuite")
        return done, {kind: int(suite.attrib[kind]) for kind in ("failures", "errors", "skipped")}

    def try_out(self, mutant: Mutant) -> str:
        """Applies a fault, runs its test, and takes the fault back; returns what came of it."""
        path = self.root / mutant.file
        whole = path.read_text()
        extensions = {file: file.read_bytes() for file in (self.root / "retrieval").glob("*.so")}
        path.write_text(mutated(mutant, whole))
        try:
            if path.suffix in _COMPILED:
                done = self.python("setup.py", "build_ext", "--inplace")
                if done.returncode:
                    return f"does not compile: {done.stdout[-400:]}"
            done, counts = self.pytest("-x", mutant.test)
        except subprocess.TimeoutExpired:
            return f"hangs for {_SECONDS} seconds"
        finally:
            path.write_text(whole)
            if path.suffix in _COMPILED:
                for file, content in extensions.items():
                    file.write_bytes(content)
        if done.returncode == 0:
            return SURVIVED
        # An error is no failure: the test was not found, or not imported, or could not begin.
        is_killed = done.returncode == 1 and counts["failures"] and not counts["errors"]
        return KILLED if is_killed else f"no test: {done.stdout[-400:]}"


def mutated(mutant: Mutant, whole: str) -> str:
    """Returns the content of a file with the fault; ValueError unless its place is clear."""
    if (count := whole.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has the old text {count} times: expected 1")
    return whole.replace(mutant.old, mutant.new)


def check_tests(copy: Copy, mutants: Sequence[Mutant]) -> None:
    """Ends the program unless all tests pass without a fault; one that is skipped finds nothing."""
    done, counts = copy.pytest(*{mutant.test: None for mutant in mutants})
    if done.returncode or counts["skipped"]:
        sys.exit(
            f"{done.stdout}\nWithout a fault all of these tests must pass, and none be skipped"
        )


def run(mutants: Sequence[Mutant], jobs: int) -> dict[str, str]:
    """Tries out all faults; returns what came of each by name."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(jobs):
            copies.put(Copy(pathlib.Path(name, str(number))))

        def one(mutant: Mutant) -> str:
            copy = copies.get()
            try:
                return copy.try_out(mutant)
            finally:
                copies.put(copy)

        copy = copies.get()
        check_tests(copy, mutants)
        copies.put(copy)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            found = progress_bar(pool.map(one, mutants), total=len(mutants), unit=" mutants")
            return {mutant.name: outcome for mutant, outcome in zip(mutants, found, strict=True)}


def main() -> int:
    """Runs what the arguments say; returns the exit code."""
    parser = argparse.ArgumentParser("mutants", description=__doc__)
    parser.add_argument("--only", default="", help="names, with commas; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    if unknown := {*names} - {mutant.name for mutant in MUTANTS}:
        parser.error(f"--only={min(unknown)}: expected names of mutants/table.py")
    if options.jobs < 1:
        parser.error(f"--jobs={options.jobs}: expected an integer >= 1")
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    # Those that are compiled take longest.
    chosen.sort(key=lambda mutant: not mutant.file.endswith(_COMPILED))
    outcomes = run(chosen, min(options.jobs, len(chosen)))
    for mutant in chosen:
        print(f"{outcomes[mutant.name]:9} {mutant.name:34} {mutant.test}")
    left = [name for name, outcome in outcomes.items() if outcome != KILLED]
    print(f"{len(chosen) - len(left)} of {len(chosen)} killed")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
