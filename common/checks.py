"""Argument checks whose errors name the argument, the value seen and what was expected."""

import numbers
from collections.abc import Iterable
from typing import TypeVar

Number = TypeVar("Number", bound=float)


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Returns `value` if it is one of `choices`, else raises ValueError naming them all."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(choices)}")
    return value


def check_number(
    name: str,
    value: Number,
    *,
    integer: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
) -> Number:
    """Returns `value` if it is a finite number within the bounds, else raises ValueError.

    Args:
        name: how the caller knows the argument.
        value: what was given.
        integer: whether only whole numbers are allowed.
        minimum: smallest allowed value, itself allowed.
        maximum: largest allowed value, itself allowed.
        above: the value must be strictly greater than this.
    """
    kind = numbers.Integral if integer else numbers.Real
    wanted = "an integer" if integer else "a finite number"
    for bound, word in ((minimum, ">="), (above, ">"), (maximum, "<=")):
        if bound is not None:
            wanted += f" {word} {bound}"
    if (
        not isinstance(value, kind)
        or isinstance(value, bool)
        or not abs(value) < float("inf")
        or (minimum is not None and value < minimum)
        or (maximum is not None and value > maximum)
        or (above is not None and value <= above)
    ):
        raise ValueError(f"{name}={value!r:.80}: expected {wanted}")
    return value
