"""Progress bars that suit both a terminal and a log file."""

import sys
from typing import Any

import tqdm


def progress_bar(*args: Any, **kwargs: Any) -> tqdm.tqdm:
    """Returns `tqdm.tqdm(...)` that redraws often on a terminal, twice a minute in a log."""
    seconds = 0.1 if sys.stderr.isatty() else 30.0
    # Without `maxinterval`, a thread of tqdm redraws any bar that has not changed for ten seconds.
    return tqdm.tqdm(*args, mininterval=seconds, maxinterval=max(10.0, seconds), **kwargs)
