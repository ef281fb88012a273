"""Which records a figure, a claim or a table takes.

A *reproduction* is a folder with one sub-folder per architecture, each with a folder of evaluation
records (see `core.records`): `<run_dir>/<architecture>/records`; or it is a `study`, which
has them in one file. Records that differ in the seed of their training run alone are a *group*.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from sparse_embed.common.arrays import read_npz
from sparse_embed.experiments.core import records as record_files
from sparse_embed.experiments.core.records import Record, is_cut
from sparse_embed.experiments.reporting import study

RECORDS = "records"  # folder of an architecture
TIME = "milliseconds_per_query"

Item = TypeVar("Item", bound=Mapping[str, Any])
"""A record or a group."""


class NotMeasured(Exception):  # noqa: N818 - nothing went wrong
    """There is no record of what a figure or a claim needs."""


def recorded(name: str) -> pathlib.Path:
    """Returns where a checkout of the repository keeps recorded results."""
    return pathlib.Path(__file__).resolve().parents[2] / "results" / name


def load(run_dir: pathlib.Path, cifar100: pathlib.Path | None = None) -> list[Record]:
    """Reads all records of a reproduction; each gets its `architecture` and its `folder`.

    That of one architecture alone, which has `records` in it, works as well.

    Args:
        run_dir: the reproduction's folder.
        cifar100: folder of recorded results of CIFAR-100, for a reproduction without its own;
            `source` in their records says where they are from.
    """
    found: list[Record] = []
    if (run_dir / study.RECORDS).exists():
        found = study.load(run_dir)
        for record in found:
            record["folder"] = run_dir
    alone = run_dir / RECORDS
    for folder in [alone] if alone.exists() else sorted(run_dir.glob(f"*/{RECORDS}")):
        architecture = folder.resolve().parent.name
        for record in record_files.load(folder):
            record.update(architecture=architecture, folder=folder)
            found.append(record)
    if cifar100 is not None and not select(found, experiment="cifar100"):
        source = f"{cifar100.parent.name}/{cifar100.name}"
        found += [{**record, "source": source} for record in load(cifar100)]
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Group(Mapping[str, Any]):
    """Records of one method and setting by their seed; reads like a record.

    The value of a key is that of all its records; a number in which they differ is their mean.
    """

    records: dict[int, Record]

    def __getitem__(self, key: str) -> Any:
        found = [record[key] for record in self.records.values()]
        differ = any(value != found[0] for value in found)
        if differ and all(isinstance(value, int | float) for value in found):
            return float(np.mean(found))
        return found[0]

    def __contains__(self, key: object) -> bool:
        return all(key in record for record in self.records.values())

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key that all records have."""
        if key not in self:
            return default
        return self[key]

    def __iter__(self) -> Iterator[str]:
        return iter(next(iter(self.records.values())))

    def __len__(self) -> int:
        return len(next(iter(self.records.values())))


def seed(record: Record) -> int:
    """Returns the seed of the training run; records of old have none."""
    found: int = record.get("seed", 0)
    return found


def groups(records: list[Record]) -> list[Group]:
    """Returns the records as groups, in the order of their first ones."""
    found: dict[str, dict[int, Record]] = {}
    for record in sorted(records, key=seed):
        keys = ("experiment", "architecture", "data", "method", "reranked", "distractors")
        key = [*(record.get(key) for key in keys), sorted(record["setting"].items())]
        found.setdefault(json.dumps(key), {})[seed(record)] = record
    return [Group(by_seed) for by_seed in found.values()]


def records_of(*found: Group) -> list[Record]:
    """Returns the records of groups, those of each by rising seed."""
    return [record for group in found for record in group.records.values()]


def common_seeds(found: Sequence[Group]) -> list[int]:
    """Returns the seeds that all groups have."""
    return sorted(set.intersection(*(set(group.records) for group in found)))


def select(records: Sequence[Item], **wanted: Any) -> list[Item]:
    """Returns the records that have all these values; a tuple stands for any of its members."""

    def fits(record: Item) -> bool:
        return all(
            record.get(key) in (value if isinstance(value, tuple) else (value,))
            for key, value in wanted.items()
        )

    return [record for record in records if fits(record)]


def needed(records: Sequence[Item], what: str, **wanted: Any) -> list[Item]:
    """Like `select`, but NotMeasured if there is none."""
    found = select(records, **wanted)
    if not found:
        raise NotMeasured(f"this run has no record of {what}")
    return found


def sparse_identification(records: list[Record], **wanted: Any) -> list[Record]:
    """Returns identification by codes that were trained sparse; NotMeasured if there is none."""
    sparse = [r for r in records if "suboptimality_ratio" in r and not is_cut(r)]
    return needed(sparse, "identification by sparse codes", experiment="megaface", **wanted)


def timed(records: list[Record]) -> list[Record]:
    """Returns, of each architecture, the records with times among the most distractors."""
    found = [record for record in records if TIME in record]
    kept = []
    for _, part in by_architecture(found):
        kept += select(part, distractors=values(part, "distractors")[-1])
    return kept


def most_seeds(records: list[Record], *methods: str) -> list[Record]:
    """Returns, of each architecture, the records among the distractors that have the most seeds.

    If several numbers of distractors have as many, the largest.

    Args:
        records: of identification.
        *methods: a seed counts if each of these has it; without any, each seed does.
    """

    def order(part: list[Record], distractors: int) -> tuple[int, int]:
        found = select(part, distractors=distractors)
        kinds = [select(found, method=method) for method in methods] or [found]
        return len(set.intersection(*({seed(r) for r in kind} for kind in kinds))), distractors

    kept = []
    for _, part in by_architecture(records):
        best = max(order(part, distractors) for distractors in values(part, "distractors"))
        kept += select(part, distractors=best[1])
    return kept


def values(records: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """Returns the different values of a key, in order."""
    return sorted({record[key] for record in records})


def by_architecture(records: Sequence[Item]) -> Iterator[tuple[str, list[Item]]]:
    """Yields each architecture with its records."""
    for architecture in values(records, "architecture"):
        yield architecture, select(records, architecture=architecture)


def arrays(record: Record, *names: str) -> dict[str, Any]:
    """Returns the raw results of a record from `load`; NotMeasured if they are gone.

    Args:
        record: the record.
        *names: which alone to read; NotMeasured if one is absent.
    """
    path, expected = raw_file(record), "the raw results of a record"
    inside: dict[str, str] | None = record.get("arrays")
    try:
        if inside is not None:  # of a study
            wanted = {name: inside[name] for name in names or inside if name in inside}
            content = read_npz(path, wanted.values(), expected=expected)
            found = {name: content[member] for name, member in wanted.items()}
        else:
            found = read_npz(path, () if names else None, names, expected=expected)
    except FileNotFoundError as error:
        raise NotMeasured(f"this run has no record of the raw results {path.name}") from error
    absent = [name for name in names if name not in found]
    if absent:
        raise NotMeasured(f"this run has no record of the raw results {', '.join(absent)}")
    return found


def raw_file(record: Record) -> pathlib.Path:
    """Returns the file of a record's raw results, which need not exist."""
    name = study.ARRAYS if "arrays" in record else f"{record['name']}.npz"
    path: pathlib.Path = record["folder"] / name
    return path


def setting(record: Mapping[str, Any]) -> str:
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
