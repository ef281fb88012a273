"""How long a call takes."""

import time
from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")


def timed(make: Callable[[], Made]) -> tuple[Made, float]:
    """Returns the result of `make`, and the seconds it took."""
    begin = time.perf_counter()
    made = make()
    return made, time.perf_counter() - begin
