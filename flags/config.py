"""From parsed flags to frozen config objects: the one place where flag values are read."""

import dataclasses
from typing import TypeVar

from absl import flags

Config = TypeVar("Config")


def from_flags(config_class: type[Config]) -> Config:
    """Returns `config_class` with every field set to the value of the flag of the same name."""
    fields = dataclasses.fields(config_class)  # type: ignore[arg-type]
    return config_class(**{field.name: flags.FLAGS[field.name].value for field in fields})
