"""Progress bars that suit both a terminal and a log file."""

import sys
import weakref
from typing import Any

import tqdm

_bars: "weakref.WeakSet[tqdm.tqdm]" = weakref.WeakSet()


def progress_bar(*args: Any, **kwargs: Any) -> tqdm.tqdm:
    """Returns `tqdm.tqdm(...)` that redraws often on a terminal, twice a minute in a log."""
    seconds = 0.1 if sys.stderr.isatty() else 30.0
    # Without `maxinterval`, a thread of tqdm redraws any bar that has not changed for ten seconds.
    bar = tqdm.tqdm(*args, mininterval=seconds, maxinterval=max(10.0, seconds), **kwargs)
    _bars.add(bar)
    return bar


def close_bars() -> None:
    """Ends the line of every bar that is still drawn, so that a message begins on a new one."""
    for bar in list(_bars):
        bar.close()
