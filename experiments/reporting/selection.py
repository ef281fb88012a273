"""Which records a figure, a claim or a table takes.

A *reproduction* is a folder with one sub-folder per architecture, each with a folder of evaluation
records (see `evaluation.records`): `<run_dir>/<architecture>/records`.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

from sparse_embed.experiments.evaluation import records as record_files
from sparse_embed.experiments.evaluation.records import Record


class NotMeasured(Exception):  # noqa: N818 - nothing went wrong
    """There is no record of what a figure or a claim needs."""


def recorded(name: str) -> pathlib.Path:
    """Returns where a checkout of the repository keeps recorded results."""
    return pathlib.Path(__file__).resolve().parents[2] / "results" / name


def load(run_dir: pathlib.Path, cifar100: pathlib.Path | None = None) -> list[Record]:
    """Reads all records of a reproduction; each gets its `architecture` and its `folder`.

    Args:
        run_dir: the reproduction's folder.
        cifar100: folder of recorded results of CIFAR-100, for a reproduction without its own;
            `source` in their records says where they are from.
    """
    found = []
    for folder in sorted(run_dir.glob("*/records")):
        found += _load(folder, architecture=folder.parent.name)
    if cifar100 is not None and not select(found, experiment="cifar100"):
        source = f"{cifar100.parent.name}/{cifar100.name}"
        found += _load(cifar100 / "records", architecture="cifar100", source=source)
    return found


def _load(folder: pathlib.Path, **more: str) -> list[Record]:
    found = record_files.load(folder)
    for record in found:
        record.update(more, folder=folder)
    return found


def select(records: list[Record], **wanted: Any) -> list[Record]:
    """Returns the records that have all these values; a tuple stands for any of its members."""

    def fits(record: Record) -> bool:
        return all(
            record.get(key) in (value if isinstance(value, tuple) else (value,))
            for key, value in wanted.items()
        )

    return [record for record in records if fits(record)]


def needed(records: list[Record], what: str, **wanted: Any) -> list[Record]:
    """Like `select`, but NotMeasured if there is none."""
    found = select(records, **wanted)
    if not found:
        raise NotMeasured(f"this run has no record of {what}")
    return found


def sparse_identification(records: list[Record], **wanted: Any) -> list[Record]:
    """Returns the records of identification by sparse codes; NotMeasured if there are none."""
    sparse = [record for record in records if "suboptimality_ratio" in record]
    return needed(sparse, "identification by sparse codes", experiment="megaface", **wanted)


def values(records: list[Record], key: str) -> list[Any]:
    """Returns the different values of a key, in order."""
    return sorted({record[key] for record in records})


def by_architecture(records: list[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Yields each architecture with its records."""
    for architecture in values(records, "architecture"):
        yield architecture, select(records, architecture=architecture)


def arrays(record: Record) -> dict[str, Any]:
    """Returns the raw results of a record from `load`; NotMeasured if they are gone."""
    try:
        return record_files.load_arrays(record["folder"], record)
    except FileNotFoundError as error:
        raise NotMeasured(f"this run has no record of the raw results {error.filename}") from error


def setting(record: Record) -> str:
    """Returns the numbers of a record's setting as text."""
    pairs = record["setting"].items()
    return ", ".join(f"{k}={v:g}" for k, v in pairs if isinstance(v, int | float))


def origin(records: list[Record]) -> str:
    """Returns a sentence with the time, machine and revision of the records."""
    notes = [record["provenance"] for record in records]
    times = sorted(note["time"][:10] for note in notes)
    hardware = sorted(
        {f"{note['hardware']['processor']}, {note['hardware']['cores']} cores" for note in notes}
    )
    revisions = sorted({str(note["revision"]) for note in notes})
    if len(revisions) > 2:
        revisions = [*revisions[:2], f"{len(revisions) - 2} more"]
    when = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return f"Measured {when} on {'; '.join(hardware)}, revision {', '.join(revisions)}."
