"""What the figures have in common: the records of a run, the look of a method, the files written.

A run is a folder with one sub-folder per architecture, each with a folder of evaluation records
(see `records`): `<run_dir>/<architecture>/records`. The scripts `figure_*` each draw one figure of
the paper from them, by two functions of the list of records: `draw` and `caption`.
"""

import dataclasses
import logging
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
from absl import flags
from matplotlib.figure import Figure

from sparse_embed.common.files import atomic_path
from sparse_embed.experiments import records
from sparse_embed.experiments.records import Record
from sparse_embed.flags import app
from sparse_embed.flags.output import RUN_DIR

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of each table of each font

FORMATS = ("svg", "pdf", "png")
FIGURES = "figures"  # folder of a run
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",  # text stays text: small files, and it can be searched
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
}


@dataclasses.dataclass(frozen=True)
class Look:
    """How a method is shown: the name, and a colour and a marker that are its own."""

    label: str
    colour: str
    marker: str


# Okabe and Ito's colours, which people with any colour vision can tell apart.
LOOKS = {
    "flops": Look("relaxed FLOPs (ours)", "#0072B2", "o"),
    "l1": Look("l1", "#D55E00", "s"),
    "sdh": Look("SDH", "#CC79A7", "X"),
    "ivfpq": Look("IVF-PQ", "#009E73", "^"),
    "lsh": Look("LSH", "#E69F00", "v"),
    "pca": Look("PCA", "#56B4E9", "D"),
    "hnsw": Look("HNSW", "#7F7F7F", "P"),
    "dense": Look("exhaustive dense", "#000000", "*"),
}


class NotMeasured(Exception):  # noqa: N818 - nothing went wrong
    """The run has no record of what a figure or a claim needs."""


def load_run(run_dir: pathlib.Path) -> list[Record]:
    """Reads all records of a run; each is told its `architecture` and the `folder` it is in."""
    found = []
    for folder in sorted(run_dir.glob("*/records")):
        names = {"architecture": folder.parent.name, "folder": folder}
        found += [{**record, **names} for record in records.load(folder)]
    return found


def select(run: list[Record], **wanted: Any) -> list[Record]:
    """Returns the records that have all these values; a tuple stands for any of its members."""

    def fits(record: Record) -> bool:
        return all(
            record.get(key) in (value if isinstance(value, tuple) else (value,))
            for key, value in wanted.items()
        )

    return [record for record in run if fits(record)]


def needed(run: list[Record], what: str, **wanted: Any) -> list[Record]:
    """`select`, but NotMeasured where there is none."""
    found = select(run, **wanted)
    if not found:
        raise NotMeasured(f"this run has no record of {what}")
    return found


def sparse_identification(run: list[Record], **wanted: Any) -> list[Record]:
    """Returns the records of identification by sparse codes; NotMeasured if there are none."""
    what, methods = "identification by sparse codes", ("flops", "l1")
    return needed(run, what, experiment="megaface", method=methods, **wanted)


def values(run: list[Record], key: str) -> list[Any]:
    """Returns the different values of a key, in order."""
    return sorted({record[key] for record in run})


def by_architecture(run: list[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Yields each architecture with its records."""
    for architecture in values(run, "architecture"):
        yield architecture, select(run, architecture=architecture)


def arrays(record: Record) -> dict[str, Any]:
    """Returns the raw results of a record that `load_run` gave; NotMeasured if they are gone."""
    try:
        return records.load_arrays(record["folder"], record)
    except FileNotFoundError as error:
        raise NotMeasured(f"this run has no record of the raw results {error.filename}") from error


def origin(run: list[Record]) -> str:
    """Returns a sentence that says when, on what and by which revision records were made."""
    notes = [record["provenance"] for record in run]
    times = sorted(note["time"][:10] for note in notes)
    hardware = sorted(
        {f"{note['hardware']['processor']}, {note['hardware']['cores']} cores" for note in notes}
    )
    revisions = sorted({str(note["revision"]) for note in notes})
    if len(revisions) > 2:
        revisions = [*revisions[:2], f"{len(revisions) - 2} more"]
    when = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return f"Measured {when} on {'; '.join(hardware)}, revision {', '.join(revisions)}."


def new_figure(columns: int, rows: int = 1, width: float = 4.6, height: float = 3.6) -> Any:
    """Returns a figure and its axes, (rows, columns), in our style."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def panels(shown: list[Record], **size: Any) -> tuple[Figure, list[tuple[Any, list[Record]]]]:
    """Returns a figure with one panel per architecture: each one's axis, titled, and records."""
    parts = list(by_architecture(shown))
    figure, axes = new_figure(len(parts), **size)
    for axis, (architecture, _) in zip(axes[0], parts, strict=True):
        axis.set_title(architecture)
    return figure, [(axis, part) for axis, (_, part) in zip(axes[0], parts, strict=True)]


def plot(axis: Any, curve: list[Record], x: str, y: str, line: str, **look: Any) -> None:
    """Draws one value of some records against another, in their order."""
    axis.plot([record[x] for record in curve], [record[y] for record in curve], line, **look)


def legend_below(figure: Figure, axis: Any) -> None:
    """Puts the legend of one panel below all of them, where it hides nothing."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def save(figure: Figure, path: pathlib.Path) -> list[pathlib.Path]:
    """Writes a figure as SVG, PDF and PNG; `path` has no suffix, or one that does not count."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    # The salt makes the ids in an SVG its own, so that several can stand in one page.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": path.stem}):
        for suffix in FORMATS:
            written.append(path.parent / f"{path.stem}.{suffix}")
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # same data, same file
            with atomic_path(written[-1]) as temporary:
                figure.savefig(temporary, transparent=suffix != "png", metadata=dated.get(suffix))
    return written


def main_of(
    name: str,
    draw: Callable[[list[Record]], Figure],
    caption: Callable[[list[Record]], str],
    load: Callable[[pathlib.Path], list[Record]] = load_run,
) -> Callable[[], None]:
    """Returns the `main` of a figure's script: draws --run_dir, says what was written."""

    def main() -> None:
        run_dir = app.existing_path("run_dir", RUN_DIR.value)
        output = flags.FLAGS.output or str(run_dir / FIGURES / name)
        run = load(run_dir)
        try:
            written = save(draw(run), pathlib.Path(output))
        except NotMeasured as reason:
            raise app.UsageError(f"--run_dir={run_dir}: {reason}") from reason
        print(*written, caption(run), sep="\n")

    return main
