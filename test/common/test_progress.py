import io
import sys

import pytest

from sparse_embed.common.progress import close_bars, progress_bar


class Clock:
    """Seconds that pass only when told."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("is_terminal", "most"), [(True, 1201), (False, 5)])
def test_a_terminal_is_redrawn_often_and_a_log_twice_a_minute(monkeypatch, is_terminal, most):
    """Two minutes of a hundred steps a second: drawn at the start, then at every interval."""
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", stream)
    clock = Clock()
    with progress_bar(total=12_001, file=stream) as bar:
        bar._time = clock
        bar.last_print_t = bar.start_t = 0.0
        for _ in range(12_000):
            clock.now += 0.01
            bar.update()
        drawn = stream.getvalue().count("\r")
    assert 0.8 * most <= drawn <= most
    assert "12000/12001" in stream.getvalue().split("\r")[-1]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_nothing_redraws_a_log_in_between(monkeypatch, is_terminal):
    """tqdm's monitor redraws a bar that was last drawn `maxinterval` ago."""
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(total=5, file=stream) as bar:
        assert bar.maxinterval >= bar.mininterval


def test_bars_end_their_line_before_a_message(capfd):
    bar = progress_bar(total=10)
    bar.update(3)
    close_bars()
    assert capfd.readouterr().err.endswith("\n")
    bar.close()  # once more does no harm
    assert capfd.readouterr().err == ""
