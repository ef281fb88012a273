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

import numpy as np

from sparse_embed.common.files import atomic_path
from sparse_embed.retrieval import _index

MAGIC = b"SPEMBIDX"
BYTE_ORDER = 0x01020304
VERSION = 1
GROUP = 4
HEADER = struct.Struct("=8sIIQQQIIQ")
ENTRY = struct.Struct("=QQII")
CHECKSUM = struct.Struct("=I")
ALIGNMENT = 64


class IndexFileError(ValueError):
    """A file that is not a whole, undamaged index file of a known version."""


def save(index: _index.SparseIndex, path: str | os.PathLike[str]) -> None:
    """Writes `index` to `path`, which keeps its old content until the new one is complete."""
    rows, dims = index.shape
    sections = [memoryview(index.list_lengths).cast("B"), memoryview(index.removed).cast("B")]
    sections += index.blocks
    offset = HEADER.size + ENTRY.size * len(sections) + CHECKSUM.size
    table = []
    for section in sections:
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        table.append(ENTRY.pack(offset, len(section), zlib.crc32(section), 0))
        offset += len(section)
    header = HEADER.pack(
        MAGIC, BYTE_ORDER, VERSION, offset, rows, dims, index.shift, GROUP, len(sections)
    )
    start = header + b"".join(table)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(start + CHECKSUM.pack(zlib.crc32(start)))
        for section in sections:
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.write(section)


def load(path: str | os.PathLike[str], mmap: bool, verify: bool) -> _index.SparseIndex:
    """Opens an index file; see `SparseIndex.load`."""
    try:
        return _load(_content(path, mmap), verify)
    except IndexFileError as error:
        raise IndexFileError(f"{os.fspath(path)}: {error}") from None


def _content(path: str | os.PathLike[str], mmap: bool) -> memoryview:
    """The bytes of the file, mapped or read."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise IndexFileError("the file is empty")
        if mmap:
            return memoryview(mmap_module.mmap(file.fileno(), size, access=mmap_module.ACCESS_READ))
        content = np.empty(size, np.uint8)
        if file.readinto(content) != size:
            raise IndexFileError("the file shrank while it was read")
        return memoryview(content)


def _load(content: memoryview, verify: bool) -> _index.SparseIndex:
    if bytes(content[: len(MAGIC)]) != MAGIC:
        raise IndexFileError("not an index file: it does not begin with the magic number")
    if len(content) < HEADER.size:
        raise IndexFileError("the file is truncated: its header is incomplete")
    _, order, version, length, rows, dims, shift, group, num_sections = HEADER.unpack(
        content[: HEADER.size]
    )
    if order != BYTE_ORDER:
        raise IndexFileError("written on a machine of the other byte order, or damaged")
    if version != VERSION:
        raise IndexFileError(f"format version {version}: this release reads version {VERSION}")
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
    if group != GROUP or num_sections != num_blocks + 2:
        raise IndexFileError("the header is damaged: its numbers do not fit together")

    sections = []
    for number, (offset, size, checksum, _) in enumerate(
        ENTRY.iter_unpack(content[HEADER.size : end])
    ):
        if offset % ALIGNMENT or offset < end or offset + size > len(content):
            raise IndexFileError(f"section {number} does not lie within the file")
        section = content[offset : offset + size]
        if (verify or number < 2) and zlib.crc32(section) != checksum:
            raise IndexFileError(f"section {number} is damaged: its checksum is wrong")
        sections.append(section)
    if len(sections[0]) != 8 * dims or len(sections[1]) not in (0, -(-rows // 64) * 8):
        raise IndexFileError("the counts or the removed rows have the wrong length")

    index = _index.SparseIndex(dims, shift)
    try:
        for number, block in enumerate(sections[2:]):
            index.attach(block, min(2**shift, rows - number * 2**shift))
    except ValueError as error:
        raise IndexFileError(f"section {number + 2}: {error}") from None
    index.restore(np.frombuffer(sections[0], np.uint64), np.frombuffer(sections[1], np.uint64))
    return index
