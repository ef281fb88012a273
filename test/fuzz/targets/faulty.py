"""A reader with every fault, to see that the engine finds them. It is not among `NAMES`."""

import os
import pathlib
import signal
import time

import numpy as np
from fuzz.mutations import Parts

TOKENS = [b"exception"]  # the others take time


def seeds() -> list[Parts]:
    """Bytes that no fault is in."""
    return [{"file": bytes(64)}]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Does what the bytes say."""
    data = parts["file"]
    if b"crash" in data:
        os.kill(os.getpid(), signal.SIGSEGV)
    if b"hang" in data:
        time.sleep(1000)
    if b"exception" in data:
        raise KeyError("a place")
    if b"memory" in data:
        np.ones(40 << 20)  # 320 MB
    if b"reserve" in data:
        np.empty(8 << 30)  # 64 GB that nobody touches
    if data[:1] != b"\0":
        raise ValueError("not a file of ours")
