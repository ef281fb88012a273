"""Command lines of `train`: flags, presets and nonsense, up to the check of the whole config."""

import contextlib
import dataclasses
import io
import math
import pathlib
import sys

from absl import flags
from absl.testing import flagsaver
from fuzz import choices
from fuzz.choices import Choices
from fuzz.mutations import Parts

from sparse_embed.experiments.training.checks import check
from sparse_embed.flags import app, config
from sparse_embed.flags.options.evaluate import Megaface
from sparse_embed.flags.options.train import Options

ALLOWED = ()  # a script that ends, ends by itself: see `attempt`
_VALUES = (
    *("1", "0", "-1", "", "x", "0.5", "1e3", "nan", "inf", "-inf", "1e-400", "1e400", "true", "no"),
    *(
        "None",
        "10,20,40",
        "10,5",
        ",",
        "1,,2",
        "nan,1",
        "relu",
        "none",
        "sdh",
        "arcface",
        "triplet",
    ),
    *(
        "glyphs",
        "cifar100",
        "recordio",
        "image_folder",
        "flops",
        "l1",
        "convnet",
        "resnet20",
        "sgd",
    ),
    *(
        "step",
        "cosine",
        "mirrored",
        "multi_worker",
        "mixed_float16",
        "/",
        "/dev/null",
        "..",
        "~",
        "~x",
    ),
    *(
        "9" * 19,
        "9" * 30,
        "9" * 5000,
        "0x10",
        "1_000",
        "٣",
        "\udcff",
        "\0",
        "a\nb",
        "=",
        "--",
        "%s",
    ),
)
_PRESETS = ("", ".", "..", "../presets/glyphs_flops", "_glyphs", "x" * 5000, "\0", "\udcff", "/")
_WORDS = ("--", "-", "", "---", "--=", "-h", "--help", "--helpfull", "--helpshort", "--no", "--nox")
_WORDS += ("--flagfile", "--flagfile=/", "--flagfile=/dev/null", "--flagfile=absent", "--undefok=x")
_OF_ABSL = {"run_with_pdb", "pdb", "pdb_post_mortem", "use_cprofile_for_profiling", "profile_file"}
_OF_ABSL |= {"run_with_profiling", "flagfile", "log_dir", "alsologtostderr", "only_check_args"}


@dataclasses.dataclass(frozen=True)
class Both:
    """The flags of `train`, and some that have parsers of their own."""

    train: Options = dataclasses.field(default_factory=Options)
    search: Megaface = dataclasses.field(default_factory=Megaface)


_NAMES = [field.name for field in config.all_fields(Both)]


def seeds() -> list[Parts]:
    """Some decisions."""
    return choices.seeds(40)


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """The script accepts the words, or ends with code 2 and one line; never with a traceback."""
    words = _command_line(Choices(parts))
    checked = []

    def main(options: Both) -> None:
        check(options.train.config)
        if options.train.model_dir:
            app.existing_path("model_dir", options.train.model_dir)
        checked.append(options.train.config)

    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    lines = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    old = sys.argv
    sys.argv = ["train", *words]
    try:
        with (
            flagsaver.flagsaver(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(lines),
        ):
            app.run(main, Both)
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = old
        flags.FLAGS.unparse_flags()
    out.flush()
    lines.flush()
    said = lines.buffer.getvalue().decode().splitlines()
    said = [line for line in said if not line.startswith(("WARNING", "W"))]
    if code == 2:
        assert len(said) == 1, f"{words}: expected one line, got {said}"
        assert said[0].startswith("train: "), said
        return
    assert code in (None, 0, 1), f"{words}: exit code {code}"
    assert code != 1 or _asks_for_help(words), f"{words}: exit code {code}, {said}"
    for made in checked:
        _check(made, words)


def _command_line(choice: Choices) -> list[str]:
    names = sorted({*flags.FLAGS, *_NAMES} - _OF_ABSL)
    words = []
    for _ in range(choice.number(6)):
        kind = choice.number(8)
        if kind < 2:
            words.append(f"--preset={choice.pick((*app.preset_names(), *_PRESETS))}")
        elif kind == 2:
            words.append(choice.pick((*_WORDS, *_VALUES)))
        elif kind == 3:
            words.append(f"--{choice.pick(('no', ''))}{choice.pick(names)}")
        else:
            name, value = choice.pick(names), choice.pick(_VALUES)
            words += choice.pick(
                ([f"--{name}={value}"], [f"-{name}={value}"], [f"--{name}", value])
            )
    return words


def _asks_for_help(words: list[str]) -> bool:
    return any("help" in word for word in words)


def _check(config: object, words: list[str]) -> None:
    """What was accepted can be used: numbers are finite and fit into 64 bits."""
    for part in vars(config).values():
        for name, value in dataclasses.asdict(part).items():
            if type(value) in (int, float):
                assert math.isfinite(value), f"{words}: {name}={value} was accepted"
                assert type(value) is float or abs(value) < 2**63, f"{words}: {name} was accepted"
