"""How every script starts: it parses the flags, and reports a mistake in one line.

An unknown flag, a value outside its choices, a path or a file that cannot be used ends the script
with one line on stderr that names it and what was expected, and exit code 2; a full disk or a lack
of memory with one line and exit code 4, Ctrl-C with one line and exit code 130. Anything else is a
bug and keeps its traceback.

`--preset=NAME` stands for the flags in `presets/NAME.flags`, which may name another preset as their
base; later flags override these.
"""

import contextlib
import errno
import os
import pathlib
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from absl import app, flags

from sparse_embed.common.failures import Failure, MachineError, UsageError, of_system
from sparse_embed.common.files import user_path
from sparse_embed.common.progress import close_bars
from sparse_embed.common.quiet import quiet_matplotlib, quiet_tensorflow
from sparse_embed.common.signals import Interrupted
from sparse_embed.flags import config

PRESETS = pathlib.Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """Returns the names of all presets; those that begin with _ are only bases of others."""
    return sorted(path.name.removesuffix(".flags") for path in PRESETS.glob("[!_]*.flags"))


def preset_flags(name: str) -> dict[str, str]:
    """Returns the flags of a preset and their values; those of its bases are among them."""
    pairs = (word.partition("=") for word in expand_presets([f"--preset={name}"]))
    return {flag.lstrip("-"): value for flag, _, value in pairs}


# Only for the help: `run` replaces it by the preset's flags before flags are parsed.
flags.DEFINE_string(
    "preset",
    None,
    "Flags of a whole experiment; later flags override them: " + ", ".join(preset_names()),
)


def run(main: Callable[[Any], int | None], options: config.Options) -> NoReturn:
    """Makes flags of the options, parses them, and exits with what `main` returns (None is 0).

    Args:
        main: takes the options that the flags give.
        options: their type, or that of each kind of thing that the script does.
    """
    quiet_tensorflow()
    quiet_matplotlib()
    # In a checkout our folders are no packages of their own: `datasets` is that of another project.
    checkout = PRESETS.resolve().parents[1]
    sys.path[:] = [path for path in sys.path if pathlib.Path(path).resolve() != checkout]
    chosen: type = object

    def parse(argv: list[str]) -> list[str]:
        nonlocal chosen
        try:
            expanded = list(expand_presets(argv))
            chosen = options.chosen(expanded) if isinstance(options, config.Kinds) else options
            config.define(chosen)
            if isinstance(options, config.Kinds):
                options.define()
            if asked := {"-h", "--help", "--helpfull"} & set(expanded):
                _show_help(chosen, [word for word in expanded if word not in asked], asked)
            return flags.FLAGS(expanded)
        except flags.UnrecognizedFlagError as error:
            _fail(UsageError(f"{error}; --help lists the flags"))
        except (flags.Error, UsageError, ValueError) as error:  # ValueError: absl's own flags
            _fail(UsageError(error))

    def guarded(argv: list[str]) -> int | None:
        if len(argv) > 1:
            _fail(UsageError(f"unexpected argument {argv[1]!r}: write --flag=value"))
        try:
            return main(config.from_flags(chosen))
        except Failure as error:
            _fail(error)
        except KeyboardInterrupt:
            _fail(Interrupted(signal.SIGINT, "interrupted"))
        except ImportError as error:
            if "pip install 'sparse-embed[" not in str(error):  # see `common.extras`
                raise
            _fail(UsageError(error))
        except OSError as error:
            _fail(of_system(error))
        except MemoryError as error:
            _fail(MachineError(f"out of memory: {error}".removesuffix(": ")))
        except Exception as error:
            if not _is_exhausted(error):
                raise
            _fail(MachineError(re.sub(r"{{.*?}} ?", "", str(error).partition("\n")[0])))

    app.run(guarded, flags_parser=parse)
    raise AssertionError("app.run does not return")


def parse(options: config.Options, words: Sequence[str]) -> Any:
    """Returns the options that a command line gives, without a global flag.

    Raises:
        UsageError: there is no such preset or flag, or a value is refused.
    """
    values, words = flags.FlagValues(), list(expand_presets(list(words)))
    config_class = options.chosen(words) if isinstance(options, config.Kinds) else options
    config.define(config_class, into=values)
    if isinstance(options, config.Kinds):
        options.define(values)
    try:
        _, *left = values(["script", *words])
    except flags.Error as error:
        raise UsageError(error) from error
    if left:
        raise UsageError(f"unexpected argument {left[0]!r}: write --flag=value")
    return config.from_flags(config_class, values)


def expand_presets(arguments: list[str], above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields the arguments with a preset's flags in place of `--preset=NAME` and `--preset NAME`.

    Args:
        arguments: arguments of a script, or lines of a preset.
        above: the presets that contain these lines, which must not name them again.
    """
    words = iter(arguments)
    for word in words:
        flag, equals, name = word.partition("=")
        if flag not in ("--preset", "-preset"):
            yield word
            continue
        name = name if equals else next(words, "")
        path = PRESETS / f"{name}.flags"
        if path not in PRESETS.glob("*.flags"):
            raise UsageError(f"--preset={name}: expected one of {', '.join(preset_names())}")
        if name in above:
            raise UsageError(f"--preset={name}: expected a base other than itself")
        lines = (line.strip() for line in path.read_text().splitlines())
        own = [line for line in lines if line and not line.startswith("#")]
        yield from expand_presets(own, (*above, name))


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
    return user_path(flag, value, wanted)


def _show_help(options: type, arguments: list[str], asked: set[str]) -> NoReturn:
    """Prints the help with the values in force, such as a preset's, in place of the defaults."""
    flags.FLAGS(arguments)
    for name in flags.FLAGS:
        if flags.FLAGS[name].present:
            flags.FLAGS.set_default(name, flags.FLAGS[name].value)
    config.name_choices(options)
    # --help shows the script's own flags; this counts the flags of this package among them.
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if module.startswith(__package__):
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    app.usage(shorthelp="--helpfull" not in asked, writeto_stdout=True, exitcode=0)
    raise AssertionError("app.usage does not return")


def _is_exhausted(error: Exception) -> bool:
    """Whether TensorFlow, which need not be loaded, lacked disk or memory."""
    name = type(error).__name__
    if name == "OutOfRangeError":  # the end of data, too
        return os.strerror(errno.EFBIG) in str(error)
    return name == "ResourceExhaustedError"


def _fail(failure: Failure) -> NoReturn:
    script = os.path.basename(sys.argv[0]).removesuffix(".py")
    close_bars()
    print(f"{script}: {' '.join(str(failure).split())}", file=sys.stderr)
    if _is_script():
        # At once: a pipeline of tf.data that still reads files may wait for Python for ever, and
        # on a full disk HDF5 would try to write what it has left, say so, and crash. What `main`
        # opened with `with` is closed by now.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None:  # as it is where the shell has closed it
                    stream.flush()
        os._exit(failure.exit_code)
    sys.exit(failure.exit_code)


def _is_script() -> bool:
    """Whether a script of this package is the program, not called by another one."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("sparse_embed.")
