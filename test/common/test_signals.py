"""Signals to this very process: noted, not followed, until the second Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from sparse_embed.common.signals import Interrupted, noted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_noted_and_handlers_come_back(number):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    with noted() as wish:
        assert wish.received is None
        os.kill(os.getpid(), number)
        assert wish.received is number
        os.kill(os.getpid(), signal.SIGTERM)
        assert wish.received is number  # the first one counts
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


def test_second_ctrl_c_is_followed():
    with pytest.raises(KeyboardInterrupt), noted() as wish:
        os.kill(os.getpid(), signal.SIGINT)
        assert wish.received is signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noted() as wish:
            os.kill(os.getpid(), signal.SIGINT)
            assert wish.received is None
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_not_wanted_or_in_another_thread_signals_are_left_alone():
    seen = []

    def look(wanted):
        with noted(wanted):
            seen.append(signal.getsignal(signal.SIGTERM))

    look(False)
    thread = threading.Thread(target=look, args=[True])
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)] * 2


def test_exit_code_is_that_of_a_shell():
    assert Interrupted(signal.SIGTERM, "x").exit_code == 143
    assert Interrupted(signal.SIGINT, "x").exit_code == 130


def test_ctrl_c_costs_one_line_in_any_script():
    code = """
import os, signal
from sparse_embed.flags import app
from sparse_embed.flags.options.sparsify import Options
app.run(lambda _: os.kill(os.getpid(), signal.SIGINT), Options)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "-c: interrupted\n"
