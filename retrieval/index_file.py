"""The file format of `SparseIndex`.

All numbers are in the byte order of the machine that wrote the file, which a marker shows.

    header     magic, byte order, version, length of the file, rows, dimensions, log2 of the rows
               per block, postings per group, number of sections
    table      per section: offset, length, CRC-32
    checksum   CRC-32 of header and table
    sections   each aligned to 64 bytes: non-zeros per dimension (uint64), removed rows (bits in
               uint64, or empty), then one section per block of rows, laid out as in `block.h`

A block is used where it lies, so opening a file with `mmap` reads little more than its offsets.
"""

import mmap as mmap_module
import os
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path
from sparse_embed.retrieval import _index

MAGIC = b"SPEMBIDX"
BYTE_ORDER = 0x01020304
VERSION = 2
READABLE = (1, 2)  # blocks of version 1 have no cells
GROUP = 4
HEADER = struct.Struct("=8sIIQQQIIQ")
ENTRY = struct.Struct("=QQII")
CHECKSUM = struct.Struct("=I")
ALIGNMENT = 64
MAX_ROWS = 2**32 - 1  # ids have 32 bits
MAX_DIMS = 2**31 - 1


class IndexFileError(DataError):
    """A file that is not a whole, undamaged index file of a known version."""


def save(index: _index.SparseIndex, path: str | os.PathLike[str]) -> None:
    """Writes `index` to `path`, which keeps its old content until the new one is complete."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        for part in parts(index.snapshot()):
            file.write(part)


def parts(state: _index.Snapshot) -> Iterator[bytes | memoryview]:
    """Yields the content of an index file, piece by piece."""
    sections = [memoryview(state.list_lengths).cast("B"), memoryview(state.removed).cast("B")]
    sections += state.blocks
    offset = HEADER.size + ENTRY.size * len(sections) + CHECKSUM.size
    table = []
    for section in sections:
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        table.append(ENTRY.pack(offset, len(section), zlib.crc32(section), 0))
        offset += len(section)
    header = HEADER.pack(
        *(MAGIC, BYTE_ORDER, VERSION, offset, state.rows, state.dims, state.shift),
        *(GROUP, len(sections)),
    )
    start = header + b"".join(table)
    written = len(start) + CHECKSUM.size
    yield start + CHECKSUM.pack(zlib.crc32(start))
    for section in sections:
        gap = -written % ALIGNMENT
        yield bytes(gap)
        yield section
        written += gap + len(section)


class MappedFile:
    """A file that is used where it lies, and whether it is still what was opened."""

    def __init__(self, path: str | os.PathLike[str]):
        self.name = os.fspath(path)
        self._file = open(path, "rb")  # noqa: SIM115 - closed with this object
        self._status = self._now()

    def content(self) -> memoryview:
        """Returns the bytes of the file."""
        size = self._status[0]
        if size == 0:
            raise IndexFileError("the file is empty")
        access = mmap_module.ACCESS_READ
        return memoryview(mmap_module.mmap(self._file.fileno(), size, access=access))

    def check(self) -> None:
        """Raises IndexFileError if the file was written to or cut since it was opened.

        To read a page that is gone would end the process, so this is asked before each search. It
        costs about two microseconds. A change in the middle of a search is not seen.
        """
        if self._now() != self._status:
            raise IndexFileError(
                f"{self.name}: the file has been changed in place since it was opened: load it "
                "again, and replace index files by renaming, as `save` does"
            )

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns


def load(
    path: str | os.PathLike[str], mmap: bool, verify: bool
) -> tuple[_index.SparseIndex, MappedFile | None]:
    """Opens an index file; see `SparseIndex.load`. Returns the file too, if it is mapped."""
    try:
        mapped = MappedFile(path) if mmap else None
        return open_content(mapped.content() if mapped else _read(path), verify), mapped
    except IndexFileError as error:
        raise IndexFileError(f"{os.fspath(path)}: {error}") from None


def _read(path: str | os.PathLike[str]) -> memoryview:
    with open(path, "rb") as file:
        content = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        if file.readinto(content) != len(content):
            raise IndexFileError("the file shrank while it was read")
        return memoryview(content)


def open_content(content: memoryview, verify: bool) -> _index.SparseIndex:
    """Returns the index that the bytes of a file hold; IndexFileError if they hold none."""
    if len(content) == 0:
        raise IndexFileError("the file is empty")
    if bytes(content[: len(MAGIC)]) != MAGIC:
        raise IndexFileError("not an index file: it does not begin with the magic number")
    if len(content) < HEADER.size:
        raise IndexFileError("the file is truncated: its header is incomplete")
    _, order, version, length, rows, dims, shift, group, num_sections = HEADER.unpack(
        content[: HEADER.size]
    )
    if order != BYTE_ORDER:
        raise IndexFileError("written on a machine of the other byte order, or damaged")
    if version not in READABLE:
        raise IndexFileError(
            f"format version {version}: this release reads versions {READABLE[0]} to {READABLE[-1]}"
        )
    if length != len(content):
        raise IndexFileError(
            f"the file has {len(content)} bytes, but its header says {length}: truncated or damaged"
        )
    end = HEADER.size + ENTRY.size * num_sections
    if end + CHECKSUM.size > len(content):
        raise IndexFileError("the section table is damaged: it exceeds the file")
    if CHECKSUM.unpack(content[end : end + CHECKSUM.size])[0] != zlib.crc32(content[:end]):
        raise IndexFileError("the header is damaged: its checksum is wrong")
    num_blocks = -(-rows // 2**shift) if shift < 16 else -1
    if group != GROUP or num_sections != num_blocks + 2 or rows > MAX_ROWS or dims > MAX_DIMS:
        raise IndexFileError("the header is damaged: its numbers do not fit together")

    sections = []
    used = end + CHECKSUM.size
    for number, (offset, size, checksum, _) in enumerate(
        ENTRY.iter_unpack(content[HEADER.size : end])
    ):
        if offset % ALIGNMENT or offset < used or offset + size > len(content):
            raise IndexFileError(f"section {number} does not lie in its place within the file")
        used = offset + size
        section = content[offset : offset + size]
        if (verify or number < 2) and zlib.crc32(section) != checksum:
            raise IndexFileError(f"section {number} is damaged: its checksum is wrong")
        sections.append(section)
    if len(sections[0]) != 8 * dims or len(sections[1]) not in (0, -(-rows // 64) * 8):
        raise IndexFileError("the counts or the removed rows have the wrong length")
    removed = np.frombuffer(sections[1], np.uint64)
    if len(removed) and rows % 64 and int(removed[-1]) >> (rows % 64):
        raise IndexFileError("rows are marked as removed that the index does not have")

    index = _index.SparseIndex(dims, shift)
    try:
        for number, block in enumerate(sections[2:]):
            index.attach(block, min(2**shift, rows - number * 2**shift))
    except ValueError as error:
        raise IndexFileError(f"section {number + 2}: {error}") from None
    index.restore(np.frombuffer(sections[0], np.uint64), removed)
    return index
