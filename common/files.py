"""Where files go, and writing them so that a reader never sees half of one."""

import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
import stat
import tempfile
from collections.abc import Iterator

from sparse_embed.common.failures import MachineError, UsageError

# What a writer may say when the disk is full; each library puts it in other words.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a temporary path of the same name, whose file replaces `path` when the block succeeds.

    The file is flushed to disk before the rename, so after a crash `path` holds either the old
    content or the new one, whole. If the block raises, the temporary file is removed and `path`
    stays as it was. What killed processes left behind is removed by the next call for `path`.

    A symbolic link stays one: the file that it points to is replaced. A file that is replaced
    keeps its permissions.

    Args:
        path: the file to write; its folder must exist.

    Raises:
        OSError: `path` exists and is not a regular file, or cannot be written; it names `path`.
    """
    target = pathlib.Path(os.path.realpath(path))
    mode = _mode(target)
    with scratch_folder(target) as folder:
        temporary = folder / target.name
        try:
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
        _flush_folder(target.parent)


def _flush_folder(folder: pathlib.Path) -> None:
    """Flushes a folder, so that a rename in it survives a loss of power, and precedes the next."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems flush no folders
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def file_lock(path: pathlib.Path) -> Iterator[None]:
    """Holds a lock on a file, which stays; others who want it, threads too, wait.

    The lock ends with the process, however that ends. Network file systems lock files, too.

    Raises:
        MachineError: the file system locks no files.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise MachineError(f"{path}: cannot be locked: {error.strerror}") from error
        try:
            yield
        finally:  # closing is not enough: a forked process has it open too
            fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)


@contextlib.contextmanager
def scratch_folder(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields an empty folder beside `path`, on the same file system, and removes it afterwards.

    There is one for each `path`, and its owner holds a lock on it. Others who want it wait. The
    lock ends with the process, however that ends: what a killed one left behind is removed by the
    next that wants the folder.
    """
    path = pathlib.Path(path)
    folder = unfinished(path).parent
    lock = _own(folder)
    if lock is None:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=folder.name) as name:
            yield pathlib.Path(name)
        return
    try:
        for left in folder.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a forked process has it open too
        os.close(lock)


def remove_abandoned(folder: pathlib.Path) -> None:
    """Removes what killed writers of files in a folder left there; waits for those that live.

    For folders whose files are not written again once they are there.
    """
    for left in folder.glob(".*.writing"):
        with scratch_folder(folder / left.name[1:].removesuffix(".writing")):
            pass


def unfinished(path: pathlib.Path) -> pathlib.Path:
    """Returns where `atomic_path` writes the file before it takes its place."""
    return path.parent / f".{path.name}.writing" / path.name


def _own(folder: pathlib.Path) -> int | None:
    """Makes the folder and locks it; returns the lock, None where folders cannot be locked."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # its owner has just removed it
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(lock), os.stat(folder)):
                    return lock
            except OSError as error:
                os.close(lock)
                if isinstance(error, FileNotFoundError):
                    continue
                return None  # some network file systems lock no folders
            os.close(lock)


def _mode(path: pathlib.Path) -> int | None:
    """Returns the permissions of a file that will be replaced, None if there is none yet."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(code, "expected a regular file to replace", os.fspath(path))
    return stat.S_IMODE(status.st_mode)


def user_path(flag: str, value: str, wanted: str) -> pathlib.Path:
    """Returns the path that a flag names, with ~ expanded; UsageError naming what is `wanted`."""
    try:
        return pathlib.Path(value).expanduser()
    except RuntimeError as error:  # ~somebody
        raise UsageError(f"--{flag}={value}: expected {wanted} ({error})") from error


def cache_folder() -> pathlib.Path:
    """Returns `sparse_embed` in `$XDG_CACHE_HOME` or `~/.cache`, for what can be made again."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "sparse_embed"
