"""How every script starts: flags are parsed, and a mistake costs the user one line.

An unknown flag, a value outside its choices, or a path that cannot be used ends the script with one
line on stderr that names the flag, the value and what was expected, and exit code 2. Anything else
is a bug and keeps its traceback. `--preset=NAME` stands for the flagfile NAME in `presets/`; flags
after it replace its own.
"""

import os
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import NoReturn

from absl import app, flags

PRESETS = pathlib.Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """Returns the names of all presets."""
    return sorted(path.name.removesuffix(".flags") for path in PRESETS.glob("*.flags"))


# Only for the help: `run` puts the flagfile in its place before flags are parsed.
flags.DEFINE_string(
    "preset",
    None,
    "Flags of a whole experiment, which later flags replace: " + ", ".join(preset_names()),
)


class Failure(Exception):  # noqa: N818 - not all of them are errors of ours
    """Ends the script with one line on stderr and `exit_code`, without a traceback."""

    exit_code = 1


class UsageError(Failure):
    """A mistake of the caller that one sentence explains."""

    exit_code = 2


def run(main: Callable[[], int | None]) -> NoReturn:
    """Parses the flags, calls `main()` and exits with what it returns (None is 0)."""

    def parse(argv: list[str]) -> list[str]:
        if {"-h", "--help"} & set(argv):
            _show_own_flags()
            app.usage(shorthelp=True, writeto_stdout=True, exitcode=0)
        try:
            return flags.FLAGS(_expand_presets(argv))
        except flags.UnrecognizedFlagError as error:
            _fail(UsageError(f"{error}; --help lists the flags"))
        except (flags.Error, UsageError) as error:
            _fail(UsageError(error))

    def guarded(argv: list[str]) -> int | None:
        if len(argv) > 1:
            _fail(UsageError(f"unexpected argument {argv[1]!r}: write --flag=value"))
        try:
            return main()
        except Failure as error:
            _fail(error)

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


def preset_path(name: str) -> pathlib.Path:
    """Returns the flagfile of a preset, or raises UsageError naming all of them."""
    path = PRESETS / f"{name}.flags"
    if not path.exists():
        raise UsageError(f"--preset={name}: expected one of {', '.join(preset_names())}")
    return path


def _show_own_flags() -> None:
    """Counts the flags of this package as the script's own, which are those that --help shows."""
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if module.startswith(__package__):
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _expand_presets(argv: list[str]) -> list[str]:
    """Returns the arguments with flagfiles in place of `--preset=NAME` and `--preset NAME`."""
    words, expanded = iter(argv), []
    for word in words:
        flag, equals, name = word.partition("=")
        if flag in ("--preset", "-preset"):
            name = name if equals else next(words, "")
            word = f"--flagfile={preset_path(name)}"
        expanded.append(word)
    return expanded


def _fail(failure: Failure) -> NoReturn:
    script = os.path.basename(sys.argv[0]).removesuffix(".py")
    print(f"{script}: {' '.join(str(failure).split())}", file=sys.stderr)
    sys.exit(failure.exit_code)
