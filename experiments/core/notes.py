"""What a reproduction notes in its folder: the steps that have ended, the estimate of a rehearsal.

`rehearsal.json` marks a folder as a rehearsal from its start on, and holds the estimate in the end.
"""

import json
import pathlib
from typing import Any, NamedTuple

from sparse_embed.common.files import atomic_path
from sparse_embed.common.reading import read_json, reading

STEPS = "steps.json"
MARK = "rehearsal.json"
GPUS = 4  # that the paper trained on faces with, but for the hash learning of SDH
IMAGES = {"embed": 1_003_530, "verify": 12_000}  # MegaFace with FaceScrub's probes; a pack
DAY = 24 * 3600
HEAD = ["step", "runs", "images per run", "ms per image", "days"]
ASSUMED = (
    "Assumed: an image costs what it cost here, with the rehearsal's batch size and without the "
    "first step of each run, which compiles. Steps and batch sizes are those of the presets, "
    f"batches on faces times the paper's {GPUS} GPUs, but not for SDH; {IMAGES['embed']:,} images "
    f"to embed and {IMAGES['verify']:,} in each pack to verify. Weights of lambda that were left "
    "out cost what those cost that were not. Not counted: class weights for 85,000 people in place "
    "of the rehearsal's, evaluation and checkpoints during training, identification, fits, and the "
    "evaluation on CIFAR-100."
)


class Row(NamedTuple):
    """The cost of steps of one kind, with one network and one method.

    Attributes:
        name: kind, network and method.
        runs: how many steps there are.
        images: how many images each of them takes.
        seconds: per image; None if they were not measured.
    """

    name: str
    runs: int
    images: int
    seconds: float | None

    @property
    def days(self) -> float:
        """Days of all the runs, as far as measured."""
        return self.runs * self.images * (self.seconds or 0.0) / DAY

    @property
    def cells(self) -> list[Any]:
        """The columns of `HEAD`."""
        if self.seconds is None:
            return [self.name, self.runs, self.images, None, None]
        return [self.name, self.runs, self.images, 1e3 * self.seconds, self.days]


def read_done(path: pathlib.Path) -> dict[str, Any]:
    """Returns what `steps.json` says: command, seconds and number of each step that has ended."""
    done: dict[str, Any] = read_json(path, "the steps that have ended; delete it to run all again")
    for name, entry in done.items():
        with reading(path, f"command, seconds and number of step {name!r}"):
            _ = " ".join(entry["command"]), entry["seconds"] + 0.0, entry.get("number", 0) + 0
    return done


def total_days(rows: list[Row]) -> float:
    """Returns the days of all rows."""
    return sum(row.days for row in rows)


def summary(rows: list[Row]) -> str:
    """Returns the whole in one sentence."""
    return f"PRESET=paper on this machine: about {total_days(rows):,.1f} days."


def write_estimate(run_dir: pathlib.Path, rows: list[Row]) -> None:
    """Marks the folder as that of a rehearsal, with its estimate; without rows as long as it runs.

    An estimate that is there is only replaced by another.
    """
    if rows or not (run_dir / MARK).exists():
        with atomic_path(run_dir / MARK) as temporary:
            temporary.write_text(json.dumps([row._asdict() for row in rows], indent=1))


def read_estimate(run_dir: pathlib.Path) -> list[Row] | None:
    """Returns the estimate of a rehearsal; None if the folder holds something else."""
    path = run_dir / MARK
    if not path.exists():
        return None
    rows = read_json(path, "the estimate of a rehearsal", list)
    with reading(path, "the estimate of a rehearsal"):
        return [Row(**row) for row in rows]
