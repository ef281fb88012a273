"""The file format of `SparseIndex`.

All numbers are in the byte order of the machine that wrote the file, which a marker shows.

    header     magic, byte order, version, length of the file, rows, dimensions, the next id, log2
               of the rows per block, postings per group, number of sections
    table      per section: offset, length, CRC-32
    checksum   CRC-32 of header and table
    sections   each aligned to 64 bytes: non-zeros per dimension (uint64), removed rows (bits in
               uint64, or empty), three arrays of ids (as in `ids.h`, each may be empty), then one
               section per block of rows, laid out as in `block.h`

Version 1 had neither the next id nor the arrays of ids, and before version 3 no block had cells.
Blocks and ids are used where they lie, so opening a file with `mmap` reads little more than offsets
and ids.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sparse_embed.common.files import atomic_path
from sparse_embed.retrieval import _index
from sparse_embed.retrieval._index import IndexFileError

MAGIC = b"SPEMBIDX"
BYTE_ORDER = 0x01020304
VERSION = 3
GROUP = 4
HEADER = struct.Struct("=8sIIQQQQIIQ")
OLD_HEADER = struct.Struct("=8sIIQQQIIQ")  # of version 1
ENTRY = struct.Struct("=QQII")
CHECKSUM = struct.Struct("=I")
ALIGNMENT = 64
MAX_ROWS = 2**32 - 1  # rows are numbered with 32 bits
MAX_DIMS = 2**31 - 1


def save(index: _index.SparseIndex, path: str | os.PathLike[str]) -> None:
    """Writes `index` to `path`, which keeps its old content until the new one is complete."""
    state = index.snapshot()
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        try:
            for part in parts(state):
                file.write(part)
        except OSError:  # the system does not write pages of a mapped file that are gone
            state.require_intact()
            raise


def parts(state: _index.Snapshot) -> Iterator[bytes | memoryview]:
    """Yields the content of an index file, piece by piece.

    Raises:
        IndexFileError: at the end, if blocks lie in a file that has been changed in place.
    """
    sections = [memoryview(state.list_lengths).cast("B"), memoryview(state.removed).cast("B")]
    sections += [*state.id_arrays, *state.blocks]
    offset = HEADER.size + ENTRY.size * len(sections) + CHECKSUM.size
    table = []
    for section in sections:
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        table.append(ENTRY.pack(offset, len(section), zlib.crc32(section), 0))
        offset += len(section)
    header = HEADER.pack(
        *(MAGIC, BYTE_ORDER, VERSION, offset, state.rows, state.dims, state.next_id),
        *(state.shift, GROUP, len(sections)),
    )
    start = header + b"".join(table)
    written = len(start) + CHECKSUM.size
    yield start + CHECKSUM.pack(zlib.crc32(start))
    for section in sections:
        gap = -written % ALIGNMENT
        yield bytes(gap)
        yield section
        written += gap + len(section)
    state.require_intact()


def load(path: str | os.PathLike[str], mmap: bool, verify: bool) -> _index.SparseIndex:
    """Opens an index file; see `SparseIndex.load`."""
    try:
        content = _map(path) if mmap else _read(path)
        index = open_content(content, verify)
    except IndexFileError as error:
        raise IndexFileError(f"{os.fspath(path)}: {error}") from None
    index.snapshot().require_intact()
    return index


def _map(path: str | os.PathLike[str]) -> _index.Mapping:
    changed = (
        f"{os.fspath(path)}: the file has been changed in place since it was opened, or cannot be "
        "read any longer: load it again, and replace index files by renaming, as `save` does"
    )
    with open(path, "rb") as file:
        return _index.Mapping(file.fileno(), os.fsencode(changed))


def _read(path: str | os.PathLike[str]) -> memoryview:
    with open(path, "rb") as file:
        content = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        if file.readinto(content) != len(content):
            raise IndexFileError("the file shrank while it was read")
        return memoryview(content)


class _Header(NamedTuple):
    """What a file says of itself, and where its section table ends."""

    rows: int
    dims: int
    next_id: int
    shift: int
    id_sections: int
    table: memoryview
    end: int

    @property
    def block_rows(self) -> list[int]:
        """The rows of each block."""
        size = 2**self.shift
        return [min(size, self.rows - begin) for begin in range(0, self.rows, size)]


def open_content(source: memoryview | _index.Mapping, verify: bool) -> _index.SparseIndex:
    """Returns the index that the bytes of a file hold; IndexFileError if they hold none."""
    content = memoryview(source)
    header = _read_header(content)
    sections = _read_sections(content, header, verify)
    rows, first_block = header.rows, 2 + header.id_sections
    if len(sections[0]) != 8 * header.dims or len(sections[1]) not in (0, -(-rows // 64) * 8):
        raise IndexFileError("the counts or the removed rows have the wrong length")
    # Copied before they are checked: a mapped file may change at any time.
    removed = np.frombuffer(sections[1], np.uint64).copy()
    if len(removed) and rows % 64 and int(removed[-1]) >> (rows % 64):
        raise IndexFileError("rows are marked as removed that the index does not have")
    kinds = [np.dtype(kind) for kind in (np.int64, np.uint32, np.uint32)]
    ids = list(zip(sections[2:first_block] or [memoryview(b"")] * 3, kinds, strict=True))
    if any(len(array) not in (0, rows * kind.itemsize) for array, kind in ids):
        raise IndexFileError("the ids have the wrong length")

    index = _index.SparseIndex(header.dims, header.shift)
    try:
        for number, count in enumerate(header.block_rows, first_block):
            index.attach(sections[number], count)
    except ValueError as error:
        raise IndexFileError(f"section {number}: {error}") from None
    own, places, ranks = (np.frombuffer(array, kind).copy() for array, kind in ids)
    file = source if isinstance(source, _index.Mapping) else None
    lengths = np.frombuffer(sections[0], np.uint64)
    try:
        index.restore(lengths, removed, header.next_id, own, places, ranks, file)
    except ValueError as error:
        raise IndexFileError(f"the ids are damaged: {error}") from None
    return index


def _read_header(content: memoryview) -> _Header:
    """Reads the header and checks it, and that there is a whole section table."""
    if len(content) == 0:
        raise IndexFileError("the file is empty")
    if bytes(content[: len(MAGIC)]) != MAGIC:
        raise IndexFileError("not an index file: it does not begin with the magic number")
    if len(content) < OLD_HEADER.size:
        raise IndexFileError("the file is truncated: its header is incomplete")
    _, order, version = OLD_HEADER.unpack(content[: OLD_HEADER.size])[:3]
    if order != BYTE_ORDER:
        raise IndexFileError("written on a machine of the other byte order, or damaged")
    if not 1 <= version <= VERSION:
        raise IndexFileError(
            f"format version {version}: this release reads versions 1 to {VERSION}"
        )
    layout = OLD_HEADER if version == 1 else HEADER
    if len(content) < layout.size:
        raise IndexFileError("the file is truncated: its header is incomplete")
    length, rows, dims, *next_id, shift, group, num_sections = layout.unpack(
        content[: layout.size]
    )[3:]
    if length != len(content):
        raise IndexFileError(
            f"the file has {len(content)} bytes, but its header says {length}: truncated or damaged"
        )
    end = layout.size + ENTRY.size * num_sections
    if end + CHECKSUM.size > len(content):
        raise IndexFileError("the section table is damaged: it exceeds the file")
    if CHECKSUM.unpack(content[end : end + CHECKSUM.size])[0] != zlib.crc32(content[:end]):
        raise IndexFileError("the header is damaged: its checksum is wrong")
    id_sections = 3 if next_id else 0
    num_blocks = -(-rows // 2**shift) if shift < 16 else -1
    expected = 2 + id_sections + num_blocks
    if group != GROUP or num_sections != expected or rows > MAX_ROWS or dims > MAX_DIMS:
        raise IndexFileError("the header is damaged: its numbers do not fit together")
    table = content[layout.size : end]
    return _Header(rows, dims, next_id[0] if next_id else rows, shift, id_sections, table, end)


def _read_sections(content: memoryview, header: _Header, verify: bool) -> list[memoryview]:
    """Returns the sections; all must lie in their places, and some or all have right checksums."""
    sections = []
    used = header.end + CHECKSUM.size
    for number, (offset, size, checksum, _) in enumerate(ENTRY.iter_unpack(header.table)):
        if offset % ALIGNMENT or offset < used or offset + size > len(content):
            raise IndexFileError(f"section {number} does not lie in its place within the file")
        used = offset + size
        section = content[offset : offset + size]
        if (verify or number < 2) and zlib.crc32(section) != checksum:
            raise IndexFileError(f"section {number} is damaged: its checksum is wrong")
        sections.append(section)
    return sections
