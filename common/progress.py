"""Progress bars that suit both a terminal and a log file."""

import sys
import weakref
from typing import Any

import tqdm

_LOG_SECONDS = 30.0  # at least, between two lines of a bar in a log

_bars: "weakref.WeakSet[tqdm.tqdm]" = weakref.WeakSet()


def progress_bar(*args: Any, **kwargs: Any) -> tqdm.tqdm:
    """Returns `tqdm.tqdm(...)`; one that, in a log, writes a line twice a minute and at its end."""
    bar = tqdm.tqdm(*args, **kwargs) if sys.stderr.isatty() else _LogBar(*args, **kwargs)
    _bars.add(bar)
    return bar


def close_bars() -> None:
    """Ends the line of every bar that is still drawn, so that a message begins on a new one."""
    for bar in list(_bars):
        bar.close()


class _LogBar(tqdm.tqdm):
    """A bar that is never drawn over, and not drawn more often than that, whoever asks for it."""

    disable: bool

    def __init__(self, *args: Any, **kwargs: Any):
        self._drawn = 0.0  # before tqdm draws it for the first time, which its delay prevents
        # With a shorter `maxinterval`, a thread of tqdm asks for it after ten seconds of no change.
        seconds = {name: _LOG_SECONDS for name in ("mininterval", "maxinterval", "delay")}
        super().__init__(*args, **kwargs, **seconds)
        if not self.disable:
            self._drawn = self.start_t
            if self.initial:  # from where it goes on
                self._write()

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Writes the bar in a line of its own, if the last one is long enough ago."""
        now = self._time()
        if now < self._drawn + _LOG_SECONDS:
            return False
        self._drawn = now
        self._write()
        return True

    def clear(self, nolock: bool = False) -> None:
        """Leaves the lines that were written as they are."""

    def close(self) -> None:
        """Writes the last line, unless the bar was made to vanish at its end."""
        if self.disable:
            return
        self.disable = True
        self._decr_instances(self)
        if self.leave is not False:
            self._ema_dt = lambda: None  # as tqdm does: the rate from start to end
            self._write()

    def _write(self) -> None:
        self.fp.write(f"{self}\n")
