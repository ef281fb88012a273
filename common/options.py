"""Fields of config dataclasses that hold all a flag needs: help, choices and bounds.

A config is a frozen dataclass of such fields. It defines no flags: `flags.config` makes one from
each field, and library code takes the config as an argument.

    @dataclasses.dataclass(frozen=True)
    class Options:
        image_size: int = option(112, "Height and width of the images.", lower=8)
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any


def option(
    default: Any,
    help: str,
    *,
    choices: Iterable[str] | Callable[[], Iterable[str]] | None = None,
    lower: float | None = None,
    upper: float | None = None,
    parser: Any = None,
) -> Any:
    """Returns a dataclass field with the default, help and bounds of its flag.

    Args:
        default: the value without a flag.
        help: one or two sentences.
        choices: the allowed words, also of a tuple; a function that returns them if the table
            is slow to import or grows.
        lower: smallest allowed number.
        upper: largest allowed number.
        parser: reads the flag's text, one of absl's parsers; by default that of the type.
    """
    metadata = {"help": help, "choices": choices, "lower": lower, "upper": upper}
    metadata["parser"] = parser
    return dataclasses.field(default=default, metadata=metadata)
