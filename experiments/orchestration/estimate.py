"""How long the paper's experiments would take on the machine of a rehearsal.

Training and embedding cost a time per image, which the rehearsal measures; the presets and the
paper say how many images there are. `rehearsal.json` in a reproduction's folder holds the result,
and marks the folder as a rehearsal from its start on.
"""

import itertools
import json
import pathlib
import statistics
from typing import Any, NamedTuple

from sparse_embed.common.files import atomic_path
from sparse_embed.common.reading import read_json, reading
from sparse_embed.experiments.evaluation import embedding_files
from sparse_embed.experiments.orchestration.steps import Step
from sparse_embed.experiments.reporting.text_table import text_table
from sparse_embed.flags.app import preset_flags

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


def estimate(rehearsed: list[Step], whole: list[Step]) -> list[Row]:
    """Returns the costs of a whole plan from the files of the steps of a rehearsal."""
    measured = {step.name: step for step in rehearsed}
    rows: dict[str, Row] = {}
    for step in whole:
        kind, network, *run = step.name.split()
        if kind not in ("train", "embed", "verify"):
            continue
        # All weights of a regularizer cost the same. On CIFAR-100 each model has its own row.
        method = run[0] if network == "cifar100" else run[0].partition("_")[0]
        name = f"{kind} {network} {method}"
        if name in rows:
            rows[name] = rows[name]._replace(runs=rows[name].runs + 1)
            continue
        wanted = f"{'train' if kind == 'train' else 'embed'} {network} {run[0]}"
        made = measured[wanted].outputs[0]  # a method's first run is in the rehearsal too
        if kind == "train":
            rows[name] = Row(name, 1, _trained_images(step), training_seconds(made))
        else:
            rows[name] = Row(name, 1, IMAGES[kind], embedding_seconds(made))
    return list(rows.values())


def _trained_images(step: Step) -> int:
    """Returns how many images a training step sees with its preset's flags."""
    (preset,) = [word for word in step.arguments if word.startswith("--preset=")]
    given = preset_flags(preset.partition("=")[2])
    is_parallel = given["dataset"] == "recordio" and given["loss"] != "sdh"
    return int(given["steps"]) * int(given["batch_size"]) * (GPUS if is_parallel else 1)


def training_seconds(record: pathlib.Path) -> float | None:
    """Returns the seconds per image of a run's record: the median of its intervals after the first.

    None if there is only the first, which compiles.
    """
    content = read_json(record, "the record of a run")
    with reading(record, "the record of a run"):
        batch = content["config"]["optimization"]["batch_size"] * content["replicas"]
        found = [
            after["seconds"] / ((after["step"] - before["step"]) * batch)
            for before, after in itertools.pairwise(content["curves"])
        ]
    return statistics.median(found) if found else None


def embedding_seconds(path: pathlib.Path) -> float:
    """Returns the seconds per image that `embed_megaface` noted."""
    return embedding_files.load(path).provenance["seconds_per_image"]


def total_days(rows: list[Row]) -> float:
    """Returns the days of all rows."""
    return sum(row.days for row in rows)


def summary(rows: list[Row]) -> str:
    """Returns the whole in one sentence."""
    return f"PRESET=paper on this machine: about {total_days(rows):,.1f} days."


def told(rows: list[Row]) -> str:
    """Returns the estimate as text."""
    cells = [["-" if c is None else _shown(c) for c in row.cells] for row in rows]
    return "\n".join([text_table(HEAD, cells), summary(rows), ASSUMED])


def _shown(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def write(run_dir: pathlib.Path, rows: list[Row]) -> None:
    """Marks the folder as that of a rehearsal, with its estimate; without rows as long as it runs.

    An estimate that is there is only replaced by another.
    """
    if rows or not (run_dir / MARK).exists():
        with atomic_path(run_dir / MARK) as temporary:
            temporary.write_text(json.dumps([row._asdict() for row in rows], indent=1))


def read(run_dir: pathlib.Path) -> list[Row] | None:
    """Returns the estimate of a rehearsal; None if the folder holds something else."""
    path = run_dir / MARK
    if not path.exists():
        return None
    rows = read_json(path, "the estimate of a rehearsal", list)
    with reading(path, "the estimate of a rehearsal"):
        return [Row(**row) for row in rows]
