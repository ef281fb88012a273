"""Flags that several scripts have: each script gets those that it imports, and no others."""

from collections.abc import Callable
from typing import Any

from absl import flags


def defined_on_import(
    namespace: dict[str, Any], makers: dict[str, Callable[[], flags.FlagHolder]]
) -> Callable[[str], Any]:
    """Returns a module's `__getattr__` that defines a flag when its name is first imported.

    A flag that a script accepts and ignores is a mistake that nobody is told of.

    Args:
        namespace: `globals()` of the module.
        makers: name in the module -> what defines the flag.
    """

    def define(name: str) -> Any:
        if name not in makers:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        namespace[name] = makers[name]()  # next time Python finds it there
        return namespace[name]

    return define
