"""Fuzzes the readers: `make fuzz`, or `PYTHONPATH=test python -m fuzz --targets=images`.

Prints a table at the end. The exit code is 1 if anything was found; each finding is a folder with
the damaged parts, which `--replay=FOLDER` runs again.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import threading
from typing import Any

from fuzz import targets
from fuzz.engine import Tally, Worker, fuzz

from sparse_embed.common.progress import progress_bar


def main() -> int:
    """Runs what the arguments say; returns the exit code."""
    parser = argparse.ArgumentParser("fuzz", description=__doc__)
    parser.add_argument("--targets", default=",".join(targets.NAMES), help="which, with commas")
    parser.add_argument("--seconds", type=float, help="time in all, shared among the targets")
    parser.add_argument("--cases", type=int, help="cases of each target")
    parser.add_argument("--seed", type=int, default=0, help="decides the cases")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("build/fuzz"))
    parser.add_argument("--json", type=pathlib.Path, help="file for the table")
    parser.add_argument("--replay", type=pathlib.Path, help="folder of a finding")
    options = parser.parse_args()
    if options.replay:
        return replay(options.replay)
    names = options.targets.split(",")
    if unknown := {*names} - {*targets.NAMES}:
        parser.error(f"--targets={min(unknown)}: expected some of {','.join(targets.NAMES)}")
    if options.seconds is None and options.cases is None:
        parser.error("expected --seconds or --cases")
    tallies = run(names, options)
    print(table([tally.row() for tally in tallies]))
    for tally in tallies:
        for finding in tally.findings:
            folder = finding.save(options.findings)
            print(f"{folder}: {finding.outcome.place}")
    if options.json:
        options.json.write_text(json.dumps([tally.row() for tally in tallies], indent=1) + "\n")
    return int(any(tally.findings for tally in tallies))


def run(names: list[str], options: argparse.Namespace) -> list[Tally]:
    """Fuzzes the targets, each thread with a process of its own."""
    jobs = max(1, min(options.jobs, len(names)))
    share = options.seconds and options.seconds / math.ceil(len(names) / jobs)
    local, workers = threading.local(), []
    total = options.cases and options.cases * len(names)
    with progress_bar(total=total, unit=" cases", smoothing=0) as progress:

        def one(name: str) -> Tally:
            if not hasattr(local, "worker"):
                local.worker = Worker()
                workers.append(local.worker)

            def report(tally: Tally) -> None:
                progress.set_description(f"{name}, {len(tally.findings)} found", refresh=False)
                progress.update()

            return fuzz(
                local.worker,
                name,
                options.seed,
                cases=options.cases,
                seconds=share,
                report=report,
            )

        try:
            with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                return list(pool.map(one, names))
        finally:
            for worker in workers:
                worker.__exit__()


def replay(folder: pathlib.Path) -> int:
    """Runs a finding again and prints what happens."""
    parts = {path.name: path.read_bytes() for path in (folder / "parts").iterdir()}
    with Worker() as worker:
        outcome = worker.run((folder / "target").read_text(), parts)
    print(f"{outcome.kind}: {outcome.place}, {outcome.growth / 2**20:.1f} MB\n{outcome.detail}")
    return int(outcome.kind not in ("accepted", "refused"))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text, with a head."""
    lines = [[name.replace("_", " ") for name in rows[0]]]
    lines += [[str(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            word.ljust(width) if place == 0 else word.rjust(width)
            for place, (word, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


if __name__ == "__main__":
    raise SystemExit(main())
