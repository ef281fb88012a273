"""Flags from dataclasses, and their objects from parsed flags.

Every field made by `common.options.option` is one flag of the same name; a field that is itself
such a dataclass stands for its fields. This is the one place where flags become options; library
code takes options and never reads flags.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from absl import flags

from sparse_embed.common.failures import UsageError

Config = TypeVar("Config")
_Field = dataclasses.Field


class Kinds(NamedTuple):
    """The options of a script that does several kinds of a thing: one flag chooses.

    Attributes:
        flag: name of the flag that chooses.
        help: its help.
        kinds: options by its values; the first one is the default.
        told_by: flag of one kind alone -> that kind, which its presence chooses.
    """

    flag: str
    help: str
    kinds: dict[str, type]
    told_by: dict[str, str] = {}  # noqa: RUF012 - a default of a tuple, which nobody changes

    def chosen(self, words: Sequence[str]) -> type:
        """Returns the options of the kind that a command line asks for.

        Raises:
            UsageError: there is no such kind.
        """
        pairs = [word.lstrip("-").split("=", 1) for word in words if word.startswith("-")]
        given = dict(pair for pair in pairs if len(pair) == 2)
        default = next((self.told_by[name] for name in given if name in self.told_by), None)
        value = given.get(self.flag, default or next(iter(self.kinds)))
        if value not in self.kinds:
            raise UsageError(f"--{self.flag}={value}: expected one of {', '.join(self.kinds)}")
        return self.kinds[value]

    def define(self, into: flags.FlagValues = flags.FLAGS) -> None:
        """Defines the flag that chooses, where the options of the kind have no such field."""
        if self.flag not in into:
            flags.DEFINE_enum(self.flag, None, list(self.kinds), self.help, flag_values=into)


Options = type | Kinds


def option_fields(config_class: type) -> list[_Field[Any]]:
    """Returns the fields of a config that are flags."""
    return [field for field in dataclasses.fields(config_class) if "help" in field.metadata]


def all_fields(config_class: type) -> Iterator[_Field[Any]]:
    """Yields the fields that are flags, also those of the configs that it is made of."""
    for field in dataclasses.fields(config_class):
        if "help" in field.metadata:
            yield field
        elif "of" in field.metadata:  # the options of each row of a table
            for row in field.metadata["of"].values():
                yield from all_fields(row.options)
        elif dataclasses.is_dataclass(field.type):
            yield from all_fields(field.type)  # type: ignore[arg-type]


def define(*config_classes: type, into: flags.FlagValues = flags.FLAGS) -> None:
    """Defines a flag for each field of the configs; existing flags are left as they are.

    Args:
        *config_classes: the configs.
        into: the flags that get them.

    Raises:
        ValueError: a flag of this name exists, and differs.
    """
    for config_class in config_classes:
        for field in all_fields(config_class):
            if field.name not in into:
                _define(field, into)
            elif not into[field.name].help.endswith(field.metadata["help"]):
                raise ValueError(f"--{field.name}: two configs define it differently")


def from_flags(config_class: type[Config], parsed: flags.FlagValues = flags.FLAGS) -> Config:
    """Returns `config_class` with every option set to its flag's value."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):  # type: ignore[arg-type]
        if "help" in field.metadata:
            value = parsed[field.name].value
            values[field.name] = tuple(value) if isinstance(value, list) else value
        elif "of" in field.metadata:
            row = field.metadata["of"].get(values[field.metadata["by"]])
            values[field.name] = from_flags(row.options, parsed) if row else None
        elif dataclasses.is_dataclass(field.type):
            values[field.name] = from_flags(field.type, parsed)  # type: ignore[arg-type]
    return config_class(**values)


def check_choices(*configs: Any) -> None:
    """Raises UsageError if a value is not in the table that its flag chooses from."""
    for config in configs:
        for field in option_fields(type(config)):
            choices, value = field.metadata["choices"], getattr(config, field.name)
            if callable(choices) and value not in (names := list(choices())):
                raise UsageError(f"--{field.name}={value}: expected one of {', '.join(names)}")


def name_choices(config_class: type, into: flags.FlagValues = flags.FLAGS) -> None:
    """Adds the names in a table to the help of the flag that chooses from it."""
    for field in all_fields(config_class):
        if callable(choices := field.metadata["choices"]):
            into[field.name].help = f"<{'|'.join(choices())}>: {field.metadata['help']}"


def _define(field: _Field[Any], into: flags.FlagValues) -> None:
    kinds = [kind for kind in typing.get_args(field.type) if kind is not type(None)]
    kind = kinds[0] if kinds else field.type
    text, choices = field.metadata["help"], field.metadata["choices"]
    default: Any = field.default
    if field.metadata["parser"]:
        flags.DEFINE(field.metadata["parser"], field.name, default, text, flag_values=into)
        return
    if typing.get_origin(field.type) is tuple:
        flags.DEFINE_list(field.name, list(default), text, flag_values=into)
        if choices is not None:
            flags.register_validator(
                field.name,
                lambda words: set(words) <= set(choices),
                f"expected some of {', '.join(choices)}",
                into,
            )
        return
    if kind is str and choices is not None and not callable(choices):
        flags.DEFINE_enum(field.name, default, list(choices), text, flag_values=into)
        return
    makers: dict[Any, Callable[..., Any]] = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    bounds = {}
    if kind in (int, float):
        bounds = {f"{end}_bound": field.metadata[end] for end in ("lower", "upper")}
    makers[kind](field.name, default, text, flag_values=into, **bounds)
    # absl's bounds let through NaN, and integers that no tensor holds.
    if kind is float:
        flags.register_validator(field.name, _is_finite, "expected a finite number", into)
    elif kind is int:
        flags.register_validator(field.name, _is_small, "expected an integer below 2^63", into)


def _is_finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _is_small(value: int | None) -> bool:
    return value is None or abs(value) < 2**63
