"""Arrays in NumPy's files, whose headers are not believed before they are checked.

NumPy takes the memory that a header asks for, then looks whether the file has so many bytes; it
reads every size of header, and a shape of -1 as "whatever there is". Here an array is read only if
its shape and type say exactly the bytes that there are, and objects, which would run code, never.
"""

import io
import math
import os
import struct
import zipfile
from collections.abc import Collection
from typing import IO

import numpy as np

from sparse_embed.common.failures import DataError
from sparse_embed.common.reading import Content, check_zip, reading

_MAGIC = b"\x93NUMPY"
_LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}
_LONGEST_HEADER = 10_000  # NumPy's own limit; it reads the header before it looks


def read_npy(
    path: str | os.PathLike[str], mmap: bool = False, expected: str = "an .npy array"
) -> np.ndarray:
    """Returns the array of an `.npy` file.

    Args:
        path: the file.
        mmap: whether to map the file, read-only, instead of reading it.
        expected: what the file should hold, for the error.
    """
    with reading(path, expected):
        with open(path, "rb") as file:
            _check_header(file, os.fstat(file.fileno()).st_size)
        array: np.ndarray = np.load(path, "r" if mmap else None, allow_pickle=False)
        _check_text(array)
    return array


def read_npz(
    path: str | os.PathLike[str],
    names: Collection[str] | None = None,
    optional: Collection[str] = (),
    expected: str = "an .npz file of arrays",
) -> Content:
    """Returns arrays of an `.npz` file by name; others in the file are not read.

    Args:
        path: the file.
        names: arrays that must be there; None for all that are.
        optional: more arrays, which may be absent.
        expected: what the file should hold, for the error.

    Raises:
        DataError: the file is damaged, lacks an array, or holds more than `check_zip` allows.
    """
    arrays: dict[str, np.ndarray] = {}
    with reading(path, expected), zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise ValueError("it holds two arrays of one name")
        absent = sorted(set(names or ()) - set(members))
        if absent:
            listed = ", ".join(map(repr, names or ()))
            raise DataError(
                f"{os.fspath(path)}: expected the arrays {listed}: {absent[0]!r} is not among "
                f"{sorted(members)[:20]}"
            )
        wanted = members if names is None else {*names, *optional}
        chosen = {name: member for name, member in members.items() if name in wanted}
        check_zip(path, chosen.values())
        for name, member in chosen.items():
            with reading(f"{os.fspath(path)}:{name}", "an array"):
                with archive.open(member) as file:
                    _check_header(file, member.file_size)
                with archive.open(member) as file:  # its end is where the CRC is checked
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
                _check_text(arrays[name])
    return Content(path, arrays)


def _check_header(file: IO[bytes], size: int) -> None:
    """Raises ValueError unless the file, of `size` bytes, is an array of that size."""
    start = file.read(8)
    if start[:6] != _MAGIC:
        raise ValueError("it does not begin like an array of NumPy")
    length = _LENGTHS.get(tuple(start[6:]))  # type: ignore[arg-type]
    if length is None:
        raise ValueError(f"version {'.'.join(map(str, start[6:]))} of the format is not known")
    prefix = file.read(length.size)
    (header_length,) = length.unpack(prefix)
    if header_length > _LONGEST_HEADER:
        raise ValueError(f"a header of {header_length:,} bytes")
    header = io.BytesIO(prefix + file.read(header_length))
    version_1 = length.size == 2
    read = np.lib.format.read_array_header_1_0 if version_1 else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(header)
    except Exception as error:  # Python's parser and tokenizer raise many kinds, MemoryError too
        raise ValueError(f"a header that cannot be read: {error}") from error
    if dtype.hasobject:
        raise ValueError("an array of Python objects is never read")
    count: int = math.prod(shape)
    if min(shape, default=0) < 0 or (dtype.itemsize == 0 and count):
        raise ValueError(f"a shape of {shape} of {dtype}")
    wanted = 8 + length.size + header_length + count * dtype.itemsize
    if wanted != size:
        raise ValueError(
            f"{size:,} bytes, but {shape} of {dtype} takes {wanted:,}: damaged, or cut off"
        )


def _check_text(array: np.ndarray) -> None:
    """Raises ValueError if an array of text holds what is none, on which Python would fail."""
    if array.dtype.kind == "U":
        codes = np.frombuffer(array.tobytes(), f"{array.dtype.byteorder}u4")
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise ValueError("text with characters that do not exist")
