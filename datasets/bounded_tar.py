"""Reads a few members of a tar archive, compressed or not, in bounded memory and time.

A few kB of a compressed archive can stand for gigabytes, in the members that are wanted, in others,
or in the headers that `tarfile` reads whole. Here no size is believed before it is checked, nothing
but the wanted members is kept, and the bytes that are unpacked are counted.
"""

import bz2
import gzip
import io
import lzma
import pathlib
import tarfile
from collections.abc import Mapping
from typing import IO, Any

from sparse_embed.common.failures import DataError
from sparse_embed.common.reading import reading

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1 << 20
_OPENERS: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
}


def read_members(path: pathlib.Path, most: Mapping[str, int], total: int) -> dict[str, bytes]:
    """Returns the content of the named members, in whatever folder of the archive they are.

    The archive is read to its end, so that its checksum, if it has one, is checked.

    Args:
        path: a tar archive: plain, `.gz`, `.xz` or `.bz2`; its first bytes tell which.
        most: the most bytes that each of the members may hold.
        total: the most bytes that all of the archive may unpack to.
    """
    contents = {}
    with open(path, "rb") as raw:
        start = raw.read(6)
        raw.seek(0)
        opener = next((o for magic, o in _OPENERS.items() if start.startswith(magic)), None)
        with reading(path, "a tar archive"), opener(raw) if opener else raw as file:
            stream = _Counted(file, path, total)
            while (header := stream.read(_BLOCK)).strip(b"\0"):
                member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
                name = pathlib.PurePosixPath(member.name).name
                if member.size < 0:
                    raise ValueError(f"{name} has {member.size} bytes")
                if name in most and member.isreg():
                    if member.size > most[name]:
                        raise DataError(
                            f"{path}: {name} holds {member.size:,} bytes: expected at most "
                            f"{most[name]:,}"
                        )
                    contents[name] = stream.read_exactly(member.size)
                    stream.skip(-member.size % _BLOCK)
                else:
                    stream.skip(-(-member.size // _BLOCK) * _BLOCK)
            while stream.read(_CHUNK):
                pass
    absent = [name for name in most if name not in contents]
    if absent:
        raise DataError(f"{path}: {absent[0]} is not in the archive")
    return contents


class _Counted:
    """A stream that refuses to give more than `total` bytes, and gives them in small pieces."""

    def __init__(self, file: IO[bytes], path: pathlib.Path, total: int):
        self._file, self._path, self._total = file, path, total
        self._left = total

    def read(self, size: int) -> bytes:
        """Returns `size` bytes, or fewer at the end."""
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                f"{self._path}: the archive unpacks to more than {self._total:,} bytes, the most "
                "that is read"
            )
        return data

    def read_exactly(self, size: int) -> bytes:
        """Returns `size` bytes; memory is taken as they come, not as they are announced."""
        found = io.BytesIO()
        while size:
            data = self.read(min(size, _CHUNK))
            if not data:
                raise EOFError("the archive ends in the middle of a member")
            found.write(data)
            size -= len(data)
        return found.getvalue()

    def skip(self, size: int) -> None:
        """Reads over `size` bytes."""
        while size:
            data = self.read(min(size, _CHUNK))
            if not data:
                raise EOFError("the archive ends in the middle of a member")
            size -= len(data)
