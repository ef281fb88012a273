"""Writing files so that a reader never sees half of one."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a temporary path beside `path` that replaces it when the block succeeds.

    The file is flushed to disk before the rename, so after a crash `path` holds either the old
    content or the new one, whole. If the block raises, the temporary file is removed and `path`
    stays as it was.

    Args:
        path: the file to write; its folder must exist. The temporary name keeps its suffixes.
    """
    path = pathlib.Path(path)
    handle, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}.", suffix="".join(path.suffixes)
    )
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes private files
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
