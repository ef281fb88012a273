"""Failures that one sentence explains: the scripts print it and exit with the failure's code."""

import errno

# The machine's fault, not the user's: what was asked for is right, and can be asked for again.
_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS),
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE),
}


class Failure(Exception):  # noqa: N818 - not every failure is an error
    """Ends a script with one line on stderr and `exit_code`, without a traceback."""

    exit_code = 1


class UsageError(Failure):
    """A mistake in the arguments; the sentence names the flag, its value and what was expected."""

    exit_code = 2


class DataError(Failure, ValueError):
    """A file that cannot be used; the sentence names the file and what is wrong with it."""

    exit_code = 2


class MachineError(Failure):
    """The machine gave out: a full disk, no memory. What was finished before is kept."""

    exit_code = 4


def of_system(error: OSError) -> Failure:
    """Returns the failure that an error of the operating system is, in one sentence."""
    reason = error.strerror or str(error) or type(error).__name__
    where = f"{error.filename}: " if error.filename is not None else ""
    kind = MachineError if error.errno in _MACHINE else DataError
    return kind(f"{where}{reason}")
