"""The load of other processes, not of this one."""

import subprocess
import sys
import time

import pytest

from sparse_embed.common.other_load import OtherLoad


def test_what_this_process_uses_is_not_other_load(monkeypatch):
    """Of 18 busy seconds in 10, 2 were its own: 1.6 cores."""
    readings = iter([(0.0, 100.0, 5.0), (10.0, 118.0, 7.0)])
    monkeypatch.setattr(OtherLoad, "_read", staticmethod(lambda: next(readings)))
    with OtherLoad() as load:
        pass
    assert load.cores == pytest.approx(1.6)


def test_another_process_is_other_load():
    spin = "import time\nend = time.time() + 1.5\nwhile time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", spin]), OtherLoad() as load:
        time.sleep(1)
    assert load.cores > 0.3
