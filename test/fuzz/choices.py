"""Bytes as a list of decisions, for targets whose input is no file.

Any bytes are valid, missing ones are zero, and zero is the plainest decision: so inputs mutate and
shrink like those of any other target.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from fuzz.mutations import CHOICES, Parts

Option = TypeVar("Option")


class Choices:
    """Reads decisions from the part `choices` of an input."""

    def __init__(self, parts: Parts):
        self._data = parts[CHOICES]
        self._place = 0

    def number(self, below: int) -> int:
        """An integer from 0 to below - 1."""
        size = (max(below - 1, 1).bit_length() + 7) // 8
        raw = self._data[self._place : self._place + size]
        self._place += size
        return int.from_bytes(raw, "little") % below

    def pick(self, options: Sequence[Option]) -> Option:
        """One of the options; the first is the plainest."""
        return options[self.number(len(options))]

    def chance(self, one_in: int) -> bool:
        """True once in so many times; never without bytes."""
        return self.number(one_in) == one_in - 1

    def generator(self) -> np.random.Generator:
        """A generator of as many random numbers as one needs."""
        return np.random.default_rng(self.number(2**16))


def seeds(size: int, count: int = 4) -> list[Parts]:
    """Inputs of `size` bytes to start from."""
    rng = random.Random(0)
    return [{CHOICES: bytes(size)}, *({CHOICES: rng.randbytes(size)} for _ in range(count))]
