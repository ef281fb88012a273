"""How every script starts: flags are parsed, and a mistake costs the user one line.

An unknown flag, a value outside its choices, or a path that cannot be used ends the script with one
line on stderr that names the flag, the value and what was expected, and exit code 2. Anything else
is a bug and keeps its traceback.
"""

import os
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import NoReturn

from absl import app, flags

EXIT_USAGE = 2


class UsageError(Exception):
    """A mistake of the caller that one sentence explains; ends the script without a traceback."""


def run(main: Callable[[], int | None]) -> NoReturn:
    """Parses the flags, calls `main()` and exits with what it returns (None is 0)."""

    def parse(argv: list[str]) -> list[str]:
        try:
            return flags.FLAGS(argv)
        except flags.UnrecognizedFlagError as error:
            _fail(f"{error}; --help lists the flags")
        except flags.Error as error:
            _fail(str(error))

    def guarded(argv: list[str]) -> int | None:
        if len(argv) > 1:
            _fail(f"unexpected argument {argv[1]!r}: values are given as --flag=value")
        try:
            return main()
        except UsageError as error:
            _fail(str(error))

    app.run(guarded, flags_parser=parse)
    raise AssertionError("app.run does not return")


def writable_folder(flag: str, value: str | None) -> pathlib.Path:
    """Returns the folder `value`, made if need be, or raises UsageError naming `--flag`."""
    path = _path(flag, value, "a folder that can be written to")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UsageError(
            f"--{flag}={value}: expected a folder that can be written to ({error.strerror})"
        ) from error
    return path


def writable_file(flag: str, value: str | None, suffix: str) -> pathlib.Path:
    """Returns the file name `value`, in a folder made if need be, or raises UsageError."""
    path = _path(flag, value, f"the name of a {suffix} file")
    if path.suffix != suffix or path.is_dir():
        raise UsageError(f"--{flag}={value}: expected the name of a {suffix} file")
    writable_folder(flag, str(path.parent))
    return path


def existing_path(flag: str, value: str | None, holding: str = "") -> pathlib.Path:
    """Returns the path `value` (and `value/holding`) if there, else raises UsageError."""
    wanted = f"a folder that holds {holding}" if holding else "a file that exists"
    path = _path(flag, value, wanted)
    if not (path / holding).exists():
        raise UsageError(f"--{flag}={value}: expected {wanted}")
    return path


def _path(flag: str, value: str | None, wanted: str) -> pathlib.Path:
    if not value:
        raise UsageError(f"--{flag} is not given: expected {wanted}")
    return pathlib.Path(value).expanduser()


def _fail(message: str) -> NoReturn:
    script = os.path.basename(sys.argv[0]).removesuffix(".py")
    print(f"{script}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(EXIT_USAGE)
