"""How long the paper's experiments would take on the machine of a rehearsal.

Training and embedding cost a time per image, which the rehearsal measures; the presets and the
paper say how many images there are. `core.notes` keeps the result.
"""

import itertools
import pathlib
import statistics
from typing import Any

from sparse_embed.common.reading import read_json, reading
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.notes import ASSUMED, GPUS, HEAD, IMAGES, Row, summary
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.orchestration.steps import Step
from sparse_embed.flags.app import preset_flags


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
    """Returns the seconds per image that `embed --source=megaface` noted."""
    seconds: float = embedding_files.load(path).provenance["seconds_per_image"]
    return seconds


def told(rows: list[Row]) -> str:
    """Returns the estimate as text."""
    cells = [["-" if c is None else _shown(c) for c in row.cells] for row in rows]
    return "\n".join([text_table(HEAD, cells), summary(rows), ASSUMED])


def _shown(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
