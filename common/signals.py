"""SIGINT (Ctrl-C) and SIGTERM as a wish to stop: noted at once, followed where nothing is lost."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from sparse_embed.common.failures import Failure


class Interrupted(Failure):
    """A signal ended the work in good order. The exit code is that of a shell: 128 + the signal."""

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.exit_code = 128 + number


class Wish:
    """Whether a signal came, and which.

    Attributes:
        received: the first signal; None before.
    """

    received: signal.Signals | None = None


@contextlib.contextmanager
def noted(wanted: bool = True) -> Iterator[Wish]:
    """Notes signals instead of following them; a second Ctrl-C is followed at once.

    SIGTERM may come twice where a service manager signals a process and its parent passes it on.
    Outside the main thread, where Python allows no handlers, or if it is not `wanted`, nothing is
    noted.
    """
    wish = Wish()
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: Any) -> None:
        wish.received = wish.received or signal.Signals(number)
        if number == signal.SIGINT:
            signal.signal(number, before[signal.SIGINT])

    if wanted and threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:  # as a shell's script does for its background jobs
                before[number] = handler
                signal.signal(number, note)
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
