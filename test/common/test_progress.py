import io
import sys
import time

import pytest
import tqdm

from sparse_embed.common.progress import close_bars, progress_bar


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


def errors(monkeypatch, is_terminal):
    """Returns the text that stands for `sys.stderr` from now on."""
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("tqdm.std.time", clock)
    return clock


def test_a_terminal_is_redrawn_often(monkeypatch, clock):
    """Two minutes of a hundred steps a second: drawn at the start, then ten times a second."""
    stream = errors(monkeypatch, True)
    with progress_bar(total=12_000) as bar:
        for _ in range(12_000):
            clock.now += 0.01
            bar.update()
        assert 960 <= stream.getvalue().count("\r") <= 1201


@pytest.mark.parametrize("wish", ["nothing", "postfix", "description", "write", "refresh"])
def test_a_log_gets_a_line_twice_a_minute_and_at_the_end(monkeypatch, clock, wish):
    """However often somebody wants it redrawn, or writes beside it."""
    stream = errors(monkeypatch, False)
    wishes = {
        "nothing": lambda bar: None,
        "postfix": lambda bar: bar.set_postfix(loss=1.5),
        "description": lambda bar: bar.set_description_str("going on"),
        "write": lambda bar: bar.write("beside", file=sys.stderr),
        "refresh": lambda bar: bar.refresh(),
    }
    with progress_bar(total=12_000, desc="counting") as bar:
        for _ in range(12_000):
            clock.now += 0.01
            bar.update()
            wishes[wish](bar)
    lines = stream.getvalue().splitlines()
    drawn = [line for line in lines if "/12000 [" in line]
    assert len(lines) - len(drawn) == (12_000 if wish == "write" else 0)
    assert 4 <= len(drawn) <= 5
    assert "12000/12000 [01:59<00:00, 100.00it/s" in drawn[-1]
    assert "\r" not in stream.getvalue()
    assert stream.getvalue().endswith("\n")


def test_bars_within_bars_and_bars_that_vanish_have_no_odd_characters_in_a_log(monkeypatch):
    stream = errors(monkeypatch, False)
    for _ in progress_bar(range(2), desc="outer"):
        for _ in progress_bar(range(3), desc="inner"):
            pass
        for _ in progress_bar(range(3), desc="vanishes", leave=False):
            pass
    for _ in progress_bar(range(3), desc="off", disable=True):
        pass
    lines = stream.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["inner", "inner", "outer"]
    assert "| 3/3 [" in lines[0]
    assert not tqdm.tqdm._instances


def test_a_log_tells_at_once_where_a_bar_goes_on(monkeypatch):
    stream = errors(monkeypatch, False)
    with progress_bar(total=10, initial=4):
        assert " 4/10 [" in stream.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_bars_end_their_line_before_a_message(capfd, monkeypatch, is_terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    bar = progress_bar(total=10)
    bar.update(3)
    close_bars()
    shown = capfd.readouterr().err
    assert shown.endswith("\n")
    assert "3/10" in shown
    bar.close()  # once more does no harm
    assert capfd.readouterr().err == ""
