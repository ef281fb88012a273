"""Flags from config dataclasses, and config objects from parsed flags.

Every field made by `common.options.option` is one flag of the same name. This is the one place
where flags become configs; library code takes configs and never reads flags.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from absl import flags

from sparse_embed.common.failures import UsageError

Config = TypeVar("Config")

_fields: dict[str, dataclasses.Field] = {}  # flag -> the field that it was made from


def define(*config_classes: type, only: Collection[str] = ()) -> None:
    """Defines a flag for each field of the configs; existing flags are left as they are.

    Args:
        *config_classes: the configs.
        only: names of the fields that are wanted; all if empty.

    Raises:
        ValueError: a flag of this name exists, and differs.
    """
    for config_class in config_classes:
        for field in option_fields(config_class):
            if only and field.name not in only:
                continue
            earlier = _fields.get(field.name)
            if earlier is None:
                _fields[field.name] = field
                _define(field)
            elif (earlier.type, earlier.metadata) != (field.type, field.metadata):
                raise ValueError(f"--{field.name}: two configs define it differently")


def option_fields(config_class: type) -> list[dataclasses.Field]:
    """Returns the fields of a config that are flags."""
    return [field for field in dataclasses.fields(config_class) if "help" in field.metadata]


def from_flags(config_class: type[Config], **more: Any) -> Config:
    """Returns `config_class` with every option set to its flag's value, and `more` fields."""
    values = {f.name: flags.FLAGS[f.name].value for f in option_fields(config_class)}
    return config_class(**values, **more)


def given(*config_classes: type) -> list[str]:
    """Returns the configs' flags that were given, as arguments for another script."""
    fields = [field for config_class in config_classes for field in option_fields(config_class)]
    names = dict.fromkeys(field.name for field in fields)  # configs may share a flag
    return [f"--{name}={flags.FLAGS[name].value}" for name in names if flags.FLAGS[name].present]


def check_choices(*configs: Any) -> None:
    """Raises UsageError if a value is not in the table that its flag chooses from."""
    for config in configs:
        for field in option_fields(type(config)):
            choices, value = field.metadata["choices"], getattr(config, field.name)
            if callable(choices) and value not in (names := list(choices())):
                raise UsageError(f"--{field.name}={value}: expected one of {', '.join(names)}")


def name_choices() -> None:
    """Adds the names in a table to the help of the flag that chooses from it."""
    for name, field in _fields.items():
        if callable(field.metadata["choices"]):
            flag = flags.FLAGS[name]
            flag.help = f"<{'|'.join(field.metadata['choices']())}>: {field.metadata['help']}"


def _define(field: dataclasses.Field) -> None:
    kinds = typing.get_args(field.type) or (field.type,)
    (kind,) = [kind for kind in kinds if kind is not type(None)]
    text, choices = field.metadata["help"], field.metadata["choices"]
    if kind is str and choices is not None and not callable(choices):
        flags.DEFINE_enum(field.name, field.default, choices, text)  # type: ignore[arg-type]
        return
    makers: dict[Any, Callable] = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    bounds = {}
    if kind in (int, float):
        bounds = {f"{end}_bound": field.metadata[end] for end in ("lower", "upper")}
    makers[kind](field.name, field.default, text, **bounds)
    # absl's bounds let through NaN, and integers that no tensor holds.
    if kind is float:
        flags.register_validator(field.name, _is_finite, "expected a finite number")
    elif kind is int:
        flags.register_validator(field.name, _is_small, "expected an integer below 2^63")


def _is_finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _is_small(value: int | None) -> bool:
    return value is None or abs(value) < 2**63
