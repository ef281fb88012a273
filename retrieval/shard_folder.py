"""A folder of index files that are one index: its shards, and what was removed from them.

    manifest.json                   says what belongs to the index; all else does not count
    shard-00000.index               a file of `SparseIndex`, which never changes
    shard-00000.removed-00007.npy   ids that were removed since from the first shard of the
                                    manifest, by the seventh change: int64, rising

A change writes new files first, then the manifest in place of the old one: it has happened as soon
as it returns, and has not happened if its process is killed before. One change at a time holds the
lock of `.lock`. Files that a killed change left are not in the manifest; later changes write over
them, or remove them.

Nothing here needs Ray.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.checks import check_number
from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path, file_lock, scratch_folder
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.reading import read_json, reading
from sparse_embed.retrieval import batches
from sparse_embed.retrieval.batches import Batch
from sparse_embed.retrieval.index import SparseIndex
from sparse_embed.retrieval.index_file import MAX_DIMS
from sparse_embed.retrieval.inputs import MAX_ID, Matrix, canonical_csr, id_array, new_ids

MANIFEST = "manifest.json"
_LOCK = ".lock"
_EXPECTED = "the manifest of a sharded index"
_FORMAT = "sparse_embed shards"
_VERSION = 1
_MOST_SHARDS = 100_000
_LONGEST_PATH, _LONGEST_NAME = 4095, 255  # bytes, as Linux has it
_BOUNDS = {  # of what the manifest holds, where they are not 0 and MAX_ID
    "dims": (0, MAX_DIMS),
    "next_id": (0, MAX_ID + 1),
    "bytes": (1, MAX_ID),
    "last_id": (-1, MAX_ID),
    "count": (1, MAX_ID),
    "checksum": (0, 2**32 - 1),
}

Rows = Matrix | Iterable[Matrix | tuple[Matrix, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Removed:
    """A list of ids that were removed from a shard."""

    file: str
    count: int
    checksum: int  # CRC-32 of the ids


@dataclasses.dataclass(frozen=True)
class Shard:
    """What the manifest knows of a shard.

    Attributes:
        name: how errors and `health` call it.
        file: its index file, in the folder or, with an absolute path, elsewhere.
        bytes: of that file.
        rows: of that file, with those that were removed before it was saved.
        living: rows of that file without these.
        first_id: smallest id of the living rows; 0 if there are none.
        last_id: largest of them; -1 if there are none.
        removed: what was removed since; None if nothing was.
    """

    name: str
    file: str
    bytes: int
    rows: int
    living: int
    first_id: int
    last_id: int
    removed: Removed | None = None

    def __len__(self) -> int:
        return self.living - (self.removed.count if self.removed else 0)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """All that belongs to an index at one moment.

    Attributes:
        dims: dimensions of all rows.
        next_id: the id that the next row gets by default.
        changes: how many changes there were; numbers the files that they wrote.
        shards: in the order in which they were made.
    """

    dims: int
    next_id: int
    changes: int
    shards: tuple[Shard, ...]


class ListGoneError(DataError):
    """A list of removed ids is not there: a later removal has replaced it, or it was lost."""


def read(folder: pathlib.Path) -> Manifest:
    """Returns the manifest of a folder, and sees that the files of all shards are there.

    Raises:
        DataError: there is no manifest, it is damaged, or a file is missing or has another size.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise DataError(f"{path}: expected {_EXPECTED}: there is no such file")
    content = read_json(path, _EXPECTED)
    with reading(path, _EXPECTED):
        if content.get("format") != _FORMAT:
            raise ValueError(f"its format is {content.get('format')!r:.80}, not {_FORMAT!r}")
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']!r:.80}: this release reads {_VERSION}")
        if content["checksum"] != _checksum(content["index"]):
            raise ValueError("its checksum is wrong: it was damaged, or changed by hand")
        manifest = _manifest(content["index"])
    for shard in manifest.shards:
        file = folder / shard.file
        try:
            size = file.stat().st_size
        except FileNotFoundError:
            raise DataError(f"{file}: the file of {shard.name} is missing") from None
        if size != shard.bytes:
            raise DataError(
                f"{file}: {size} bytes: expected {shard.bytes} for {shard.name}, as the manifest "
                "says: truncated, or another file"
            )
    return manifest


def _manifest(content: Any) -> Manifest:
    """Returns the manifest that JSON holds; ValueError naming the field that cannot be."""
    index = _fields("index", content, Manifest)
    if not isinstance(index["shards"], list) or not index["shards"]:
        raise _unfit("index.shards", index["shards"], "a list of shards, at least one")
    shards: list[Shard] = []
    for place, entry in enumerate(index["shards"]):
        where = f"index.shards[{place}]"
        found = _fields(where, entry, Shard)
        removed = found["removed"]
        if removed is not None:
            removed = Removed(**_fields(f"{where}.removed", removed, Removed))
        shards.append(Shard(**{**found, "removed": removed}))
        _check_shard(where, shards[-1])
    for name in ("name", "file"):
        taken = set()
        for place, shard in enumerate(shards):
            value = getattr(shard, name)
            if value in taken:
                raise _unfit(f"index.shards[{place}].{name}", value, f"a {name} of its own")
            taken.add(value)
    # To open an index takes memory for each dimension, and each file has as much.
    most, last = min(shard.bytes for shard in shards) // 8, max(shard.last_id for shard in shards)
    if index["dims"] > most:
        raise _unfit("index.dims", index["dims"], f"at most {most}, for which the files are large")
    if index["next_id"] <= last:
        raise _unfit("index.next_id", index["next_id"], f"more than {last}, the largest id")
    return Manifest(**{**index, "shards": tuple(shards)})


def _fields(where: str, content: Any, kind: type) -> dict[str, Any]:
    """Returns the fields of an object, whose integers and names are right by themselves."""
    fields = dataclasses.fields(kind)
    names = [field.name for field in fields]
    if not isinstance(content, dict):
        raise _unfit(where, content, f"an object with {', '.join(names)}")
    for name in sorted({*names} ^ {*content}):
        what = "missing" if name in names else "unknown"
        raise ValueError(f"{where}.{name:.80} is {what}: expected {', '.join(names)}")
    for field in fields:
        value, name = content[field.name], f"{where}.{field.name}"
        if field.type is int:
            least, most = _BOUNDS.get(field.name, (0, MAX_ID))
            check_number(name, value, integer=True, minimum=least, maximum=most)
        elif field.type is str and not (isinstance(value, str) and value):
            raise _unfit(name, value, "a name")
    return content


def _check_shard(where: str, shard: Shard) -> None:
    """Raises ValueError unless the fields fit each other, and paths lead where they may."""
    path = pathlib.PurePosixPath(shard.file)
    is_elsewhere = path.is_absolute() and ".." not in path.parts
    if not (is_elsewhere and _can_be(shard.file, _LONGEST_PATH)) and not _is_name(shard.file):
        wanted = "the name of a file in the folder, or the absolute path of one elsewhere"
        raise _unfit(f"{where}.file", shard.file, wanted)
    if shard.living > shard.rows:
        raise _unfit(f"{where}.living", shard.living, f"at most its {shard.rows} rows")
    if bool(shard.living) != (shard.first_id <= shard.last_id):
        wanted = f"at least its first_id {shard.first_id}" if shard.living else "-1 without rows"
        raise _unfit(f"{where}.last_id", shard.last_id, wanted)
    if shard.removed is None:
        return
    if not _is_name(shard.removed.file):
        raise _unfit(
            f"{where}.removed.file", shard.removed.file, "the name of a file in the folder"
        )
    if shard.removed.count > shard.living:
        most = f"at most its {shard.living} living rows"
        raise _unfit(f"{where}.removed.count", shard.removed.count, most)


def _is_name(file: str) -> bool:
    """Whether a path can be that of a file in the folder itself."""
    return file not in (".", "..") and "/" not in file and _can_be(file, _LONGEST_NAME)


def _can_be(file: str, longest: int) -> bool:
    """Whether a path of at most so many bytes can be that of a file."""
    try:
        return len(os.fsencode(file)) <= longest and "\0" not in file
    except UnicodeEncodeError:  # half a character
        return False


def _unfit(where: str, value: Any, expected: str) -> ValueError:
    return ValueError(f"{where}={value!r:.80}: expected {expected}")


def open_shard(folder: pathlib.Path, shard: Shard, dims: int) -> SparseIndex:
    """Opens a shard by memory mapping, without the rows that were removed from it.

    Raises:
        DataError: a file is damaged, or is not the one that the manifest speaks of.
        ListGoneError: the list of removed ids is not there.
    """
    path = folder / shard.file
    index = SparseIndex.load(path)
    if index.shape != (shard.rows, dims) or len(index) != shard.living:
        raise DataError(
            f"{path}: {len(index)} of {index.shape[0]} rows, {index.shape[1]} dimensions: expected "
            f"{shard.living} of {shard.rows}, {dims} for {shard.name}, as the manifest says"
        )
    if shard.removed is not None:
        index.remove(_removed_ids(folder, shard))
    return index


def _removed_ids(folder: pathlib.Path, shard: Shard) -> np.ndarray:
    """Reads the ids that were removed from a shard."""
    if shard.removed is None:
        return np.empty(0, np.int64)
    path = folder / shard.removed.file
    try:
        ids = read_npy(path, expected=f"the ids that were removed from {shard.name}")
    except FileNotFoundError:
        raise ListGoneError(f"{path}: the ids removed from {shard.name} are missing") from None
    if ids.dtype != np.int64 or ids.shape != (shard.removed.count,):
        raise DataError(f"{path}: {ids.shape} of {ids.dtype}: expected {shard.removed.count} ids")
    if zlib.crc32(ids) != shard.removed.checksum:
        raise DataError(f"{path}: its checksum is wrong: the ids are damaged")
    return ids


def create(
    folder: pathlib.Path,
    csr: Rows,
    shards: int | None = None,
    shard_rows: int | None = None,
    ids: np.ndarray | None = None,
    num_threads: int = 1,
    progress: bool = False,
    rows: int | None = None,
) -> Manifest:
    """Writes the rows of a matrix, or of batches, as shards; see `ShardedIndex.build`."""
    if (shards is None) == (shard_rows is None):
        raise ValueError(
            f"shards={shards!r}, shard_rows={shard_rows!r}: expected one of them, and not both"
        )
    for name, number, most in (("shards", shards, _MOST_SHARDS), ("shard_rows", shard_rows, None)):
        if number is not None:
            check_number(name, number, integer=True, minimum=1, maximum=most)
    with _new_folder(folder) as scratch:
        stream, total = _stream(csr, ids)
        total = rows if total is None else total
        if total is None and shards is not None:
            stream, total = _spooled(stream, scratch)
        sizes: Iterable[int] = itertools.repeat(shard_rows or 0)
        if shards is not None:
            sizes = np.diff(np.linspace(0, total or 0, shards + 1).astype(np.int64)).tolist()
        with progress_bar(total=total, unit="rows", disable=not progress) as bar:
            source = _Rows(stream, bar)
            manifest = _write_shards(folder, source, sizes, num_threads)
        if rows is not None and not (source.ended and source.taken == rows):
            had = f"{source.taken}" if source.ended else "more"
            raise ValueError(f"rows={rows}: csr has {had}: expected the number of its rows")
        _write(folder, manifest)
    return manifest


def _write_shards(
    folder: pathlib.Path, rows: "_Rows", sizes: Iterable[int], num_threads: int
) -> Manifest:
    """Writes shards of these sizes, up to the end of the rows, and returns their manifest."""
    made: list[Shard] = []
    for size in sizes:
        if made and rows.ended and size:
            break
        index = SparseIndex.build(rows.take(size), num_threads=num_threads)
        made.append(_save(folder, f"shard-{len(made):05d}", index, made))
        del index  # before the next one is made
    return Manifest(rows.dims, rows.next_id, 0, tuple(made))


def create_from_files(folder: pathlib.Path, paths: Iterable[str | os.PathLike[str]]) -> Manifest:
    """Makes saved index files the shards of a folder; they stay where they are.

    Raises:
        ValueError: there is no file, two have rows of one id, or they have different dimensions.
    """
    with _new_folder(folder):
        made: list[Shard] = []
        dims, next_id = 0, 0
        for path in map(pathlib.Path, paths):
            index = SparseIndex.load(path)
            if made and index.shape[1] != dims:
                raise ValueError(f"{path}: {index.shape[1]} dimensions: expected {dims}, as before")
            dims, next_id = index.shape[1], max(next_id, index.next_id)
            inside = path.resolve().parent == folder.resolve()
            file = path.name if inside else str(path.resolve())
            _check_apart(folder, str(path), index, made)
            made.append(_entry(folder, path.stem, file, index))
        if not made:
            raise ValueError("paths names no file: expected at least one")
        files = [shard.file for shard in made]
        if len(set(files)) < len(files):  # empty ones, or their ids would be the same
            raise ValueError(f"paths names {max(files, key=files.count)} twice: expected it once")
        names = [shard.name for shard in made]
        if len(set(names)) < len(names):  # files of one name in different folders
            made = [dataclasses.replace(shard, name=shard.file) for shard in made]
        manifest = Manifest(dims, next_id, len(made), tuple(made))
        _write(folder, manifest)
    return manifest


def add(
    folder: pathlib.Path, csr: Matrix, ids: np.ndarray | None = None, num_threads: int = 1
) -> tuple[Manifest, np.ndarray]:
    """Writes rows as a new shard; returns the new manifest and the ids of the rows.

    Raises:
        ValueError: a row has one of the ids, or one is there twice; nothing is added then.
    """
    with _changing(folder):
        manifest = read(folder)
        rows = canonical_csr("csr", csr, manifest.dims)
        given = new_ids(ids, rows.shape[0])
        if given is None:
            last = manifest.next_id + rows.shape[0]
            given = id_array("ids", np.arange(manifest.next_id, last, dtype=np.uint64))
        index = SparseIndex(manifest.dims, batches.block_rows(rows))
        index.add(csr, given, num_threads)
        name = f"shard-{_number(manifest):05d}"
        shard = _save(folder, name, index, manifest.shards)
        manifest = dataclasses.replace(
            manifest,
            next_id=max(manifest.next_id, index.next_id),
            changes=manifest.changes + 1,
            shards=(*manifest.shards, shard),
        )
        _write(folder, manifest)
    return manifest, given


def remove(folder: pathlib.Path, ids: np.ndarray) -> tuple[Manifest, int]:
    """Writes which rows are removed; returns the new manifest and how many were not before.

    Raises:
        ValueError: no row ever had one of the ids; nothing is removed then.
    """
    wanted = np.unique(id_array("ids", ids))
    with _changing(folder):
        old = read(folder)
        known, lists = np.zeros(len(wanted), bool), {}
        for place, shard in enumerate(old.shards):
            within = (wanted >= shard.first_id) & (wanted <= shard.last_id)
            if not within.any():
                continue
            theirs = wanted[within]
            there = np.isin(theirs, SparseIndex.load(folder / shard.file).ids)
            known[within] |= there
            before = _removed_ids(folder, shard)
            after = np.union1d(before, theirs[there])
            if len(after) > len(before):
                lists[place] = after
        if not known.all():
            unknown = wanted[~known][0]
            raise ValueError(
                f"ids holds {unknown}, which no row has: expected ids of rows in the index"
            )
        if not lists:
            return old, 0
        shards = list(old.shards)
        for place, after in lists.items():
            name = f"shard-{place:05d}.removed-{old.changes + 1:05d}.npy"
            shards[place] = _with_removed(folder, shards[place], name, after)
        manifest = dataclasses.replace(old, changes=old.changes + 1, shards=tuple(shards))
        _write(folder, manifest)
        kept = {shard.removed.file for shard in manifest.shards if shard.removed is not None}
        for path in folder.glob("shard-*.removed-*.npy"):
            if path.name not in kept:  # replaced now, or left by a killed change
                path.unlink(missing_ok=True)
    return manifest, sum(map(len, old.shards)) - sum(map(len, manifest.shards))


def _with_removed(folder: pathlib.Path, shard: Shard, name: str, ids: np.ndarray) -> Shard:
    """Writes a list of removed ids and returns the shard with it."""
    with atomic_path(folder / name) as temporary:
        np.save(temporary, ids)
    return dataclasses.replace(shard, removed=Removed(name, len(ids), zlib.crc32(ids)))


def _save(folder: pathlib.Path, name: str, index: SparseIndex, others: Iterable[Shard]) -> Shard:
    """Writes an index as a shard beside `others`; ValueError if one of them has one of its ids."""
    _check_apart(folder, name, index, others)
    file = f"{name}.index"
    index.save(folder / file)
    return _entry(folder, name, file, index)


def _entry(folder: pathlib.Path, name: str, file: str, index: SparseIndex) -> Shard:
    """Returns what the manifest says of an index that was saved."""
    ids = index.ids
    first, last = (int(ids[0]), int(ids[-1])) if len(ids) else (0, -1)
    size = (folder / file).stat().st_size
    return Shard(name, file, size, index.shape[0], len(ids), first, last)


def _check_apart(
    folder: pathlib.Path, name: str, index: SparseIndex, others: Iterable[Shard]
) -> None:
    """Raises ValueError if a row of another shard has an id of `index`."""
    ids = index.ids
    for other in others:
        if not len(ids) or other.last_id < ids[0] or other.first_id > ids[-1]:
            continue
        theirs = open_shard(folder, other, index.shape[1]).ids
        both = np.intersect1d(ids, theirs, assume_unique=True)
        if len(both):
            raise ValueError(
                f"ids holds {both[0]}, which a row of {other.name} has: expected other ids in "
                f"{name}"
            )


def _number(manifest: Manifest) -> int:
    """Returns a number that no shard of the manifest has in its name or its file's."""
    taken = {name for shard in manifest.shards for name in (f"{shard.name}.index", shard.file)}
    count = itertools.count(len(manifest.shards))
    return next(n for n in count if f"shard-{n:05d}.index" not in taken)


def _checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _write(folder: pathlib.Path, manifest: Manifest) -> None:
    """Makes `manifest` that of the folder."""
    index = json.loads(json.dumps(dataclasses.asdict(manifest)))
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "index": index,
        "checksum": _checksum(index),
    }
    with atomic_path(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(content, indent=1))


@contextlib.contextmanager
def _changing(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Waits until nobody else changes the folder; yields a folder for what is not to stay."""
    if not folder.is_dir():
        raise DataError(f"{folder}: expected the folder of a sharded index")
    with file_lock(folder / _LOCK), scratch_folder(folder / "change") as scratch:
        yield scratch


@contextlib.contextmanager
def _new_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a folder that has no manifest yet, and holds it as `_changing` does."""
    folder.mkdir(parents=True, exist_ok=True)
    with _changing(folder) as scratch:
        if (folder / MANIFEST).exists():
            raise ValueError(
                f"folder={str(folder)!r} holds a sharded index already: expected a new folder, or "
                "`add` to it"
            )
        yield scratch


class _Rows:
    """The rows of a stream, handed out by number; those without ids get 0, 1, 2, ... in order."""

    def __init__(self, stream: Iterator[Batch], bar: Any):
        first = next(stream, None)
        if first is None:
            raise ValueError("csr yields nothing: expected a matrix, which tells the dimensions")
        self.dims, self.next_id, self.taken = first.rows.shape[1], 0, 0
        self._stream, self._left, self._bar = stream, first, bar

    @property
    def ended(self) -> bool:
        """Whether all rows were taken; reads the next batch to know."""
        while not len(self._left):
            batch = next(self._stream, None)
            if batch is None:
                return True
            self._left = batch
        return False

    def take(self, count: int) -> Iterator[tuple[scipy.sparse.csr_array, np.ndarray]]:
        """Yields the next `count` rows, or all that are left, with their ids; a matrix at least."""
        if not count or self.ended:
            yield _matrix(self._left.part(0, 0)), np.empty(0, np.int64)
        while count and not self.ended:
            size = min(count, len(self._left))
            part = self._left.part(0, size)
            # A copy, so that what is left does not keep the whole batch.
            self._left = batches.joined([self._left.part(size, len(self._left))])
            ids = np.arange(self.next_id, self.next_id + size) if part.ids is None else part.ids
            self.next_id = max(self.next_id, int(ids.max()) + 1)
            self.taken += size
            count -= size
            self._bar.update(size)
            yield _matrix(part), ids
            del part


def _matrix(batch: Batch) -> scipy.sparse.csr_array:
    """Returns the rows of a batch as a matrix of SciPy, in the same memory."""
    indptr, columns, values = (np.asarray(array) for array in batch.rows.arrays)
    return scipy.sparse.csr_array((values, columns, indptr), shape=batch.rows.shape)


def _stream(csr: Rows, ids: np.ndarray | None) -> tuple[Iterator[Batch], int | None]:
    """Returns rows as batches, and their number; None if it shows only when they end."""
    if not batches.is_stream(csr):
        rows = canonical_csr("csr", csr)
        return iter([Batch(rows, new_ids(ids, rows.shape[0]))]), rows.shape[0]
    if ids is not None:
        raise ValueError("ids is given, but csr yields batches: expected pairs (matrix, ids)")
    stream = batches.read(csr)
    if isinstance(csr, list | tuple):
        return stream, sum(batches.matrix(one).shape[0] for one in csr)
    return stream, None


def _spooled(stream: Iterator[Batch], scratch: pathlib.Path) -> tuple[Iterator[Batch], int]:
    """Writes batches to files; returns them again, from there, and the number of their rows."""
    total = number = 0
    for number, batch in enumerate(stream, 1):
        total += len(batch)
        names = ("indptr", "indices", "data")
        arrays = dict(zip(names, map(np.asarray, batch.rows.arrays), strict=True))
        more = {} if batch.ids is None else {"ids": batch.ids}
        arrays |= {"shape": np.array(batch.rows.shape), **more}
        np.savez(scratch / f"{number - 1}.npz", **arrays)  # type: ignore[arg-type]

    def again() -> Iterator[tuple[scipy.sparse.csr_array, np.ndarray] | scipy.sparse.csr_array]:
        for place in range(number):
            with np.load(scratch / f"{place}.npz") as arrays:
                parts = [arrays[name] for name in ("data", "indices", "indptr")]
                rows = scipy.sparse.csr_array(tuple(parts), shape=tuple(arrays["shape"]))
                yield (rows, arrays["ids"]) if "ids" in arrays else rows
            del parts, rows
            (scratch / f"{place}.npz").unlink()

    return batches.read(again()), total
