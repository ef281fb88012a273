"""Reading files that may be damaged, or somebody's attempt to take all memory.

Every reader names the file and what is wrong with it in one sentence, a `DataError`; what the
operating system says stays an OSError.
"""

import contextlib
import errno
import json
import lzma
import os
import pathlib
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sparse_embed.common.failures import DataError

# What parsers raise at content that they cannot make sense of. UnicodeDecodeError and
# JSONDecodeError are ValueErrors; an OSError without errno is how gzip and h5py speak of content,
# and EINVAL comes from a seek to an absurd place. NotImplementedError is zipfile's word for zips
# that it does not know.
_DAMAGE = (
    *(ValueError, TypeError, LookupError, ArithmeticError, EOFError, OSError),
    *(NotImplementedError, RecursionError, SyntaxError),
    *(struct.error, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile),
)
_SMALL = 64 << 20  # bytes that any zip archive may hold, however small it is
_MOST_TIMES = 50
_MOST_LEVELS = 100  # of JSON


class Content(dict[str, Any]):
    """What a file holds by name; to ask for a name that it lacks is a DataError naming the file."""

    def __init__(self, path: str | os.PathLike[str], content: Mapping[str, Any]):
        super().__init__(content)
        self._path = os.fspath(path)

    def __missing__(self, name: str) -> Any:
        raise DataError(f"{self._path}: {name!r} is missing")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], expected: str, *more: type[Exception]) -> Iterator[None]:
    """Makes what a parser raises in the block a DataError: `<path>: expected <expected>: why`.

    Only the call of the parser belongs into the block: a mistake of ours in it would look like a
    damaged file.

    Args:
        path: the file.
        expected: what it should be.
        *more: other exceptions that this parser raises at damaged content.
    """
    kinds: tuple[type[Exception], ...] = (*_DAMAGE, *more)
    try:
        yield
    except DataError:
        raise
    except kinds as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(reason.split())[:300] or type(error).__name__
        raise DataError(f"{os.fspath(path)}: expected {expected}: {reason}") from error


def read_json(path: str | os.PathLike[str], expected: str, kind: type[Any] = dict) -> Any:
    """Returns the content of a JSON file: a `Content`, or a list.

    Args:
        path: the file.
        expected: what the file should be, for the error.
        kind: what its outermost value must be.
    """
    with reading(path, expected):
        content = parse_json(pathlib.Path(path).read_bytes())
        if not isinstance(content, kind):
            wanted = "object" if kind is dict else "list"
            raise ValueError(f"it holds no JSON {wanted}, but {str(content)[:40]!r}")
    return Content(path, content) if isinstance(content, dict) else content


def parse_json(text: str | bytes) -> Any:
    """Returns what a JSON text says.

    Raises:
        ValueError: it is none, or nested so deeply that whoever goes through it, as Python's own
            `json.dumps` and `repr` do, or a database, may give up.
    """
    try:
        content = json.loads(text)
        level = [content] if isinstance(content, dict | list) else []
        for _ in range(_MOST_LEVELS):
            inside = (one.values() if isinstance(one, dict) else one for one in level)
            level = [part for parts in inside for part in parts if isinstance(part, dict | list)]
        is_too_deep = bool(level)
    except RecursionError:
        is_too_deep = True
    if is_too_deep:
        raise ValueError(f"it is nested too deeply: expected at most {_MOST_LEVELS} levels")
    return content


def check_zip(path: str | os.PathLike[str], members: Collection[zipfile.ZipInfo]) -> None:
    """Refuses members of a zip archive that could take more memory than honest ones.

    A few bytes of DEFLATE can stand for a thousand times as many. What this project stores
    compresses a few times, some arrays in it a hundred times: all members to be read may hold 64
    MiB together, or 50 times the bytes of the file if that is more. `zipfile` never gives more than
    the declared size, so nothing is read here.

    Raises:
        DataError: they hold more, or one is encrypted, or compressed by another method than
            DEFLATE, whose memory Python does not limit.
    """
    size = os.stat(path).st_size
    limit = max(_SMALL, _MOST_TIMES * size)
    total = sum(member.file_size for member in members)
    if total > limit:
        raise DataError(
            f"{os.fspath(path)}: a zip archive of {size:,} bytes that unpacks to {total:,}: "
            f"expected at most {limit:,} (64 MiB, or {_MOST_TIMES} times its size)"
        )
    for member in members:
        if member.flag_bits & 1:
            raise DataError(f"{os.fspath(path)}: {member.filename} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(
                f"{os.fspath(path)}: {member.filename} is compressed by method "
                f"{member.compress_type}: expected 0 or 8 (DEFLATE)"
            )


def check_keras_file(path: str | os.PathLike[str]) -> None:
    """Refuses a `.keras` file with a wrong checksum: Keras would go on with damaged weights.

    Call it within `reading`.
    """
    with zipfile.ZipFile(path) as archive:
        check_zip(path, archive.infolist())
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"{damaged} in it is damaged: its checksum is wrong")
