import io
import sys

import pytest

from sparse_embed.common.progress import progress_bar


@pytest.mark.parametrize(("is_terminal", "seconds"), [(True, 0.1), (False, 30.0)])
def test_a_log_gets_a_line_twice_a_minute(monkeypatch, is_terminal, seconds):
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(total=5, file=stream) as bar:
        bar.update(5)
        assert bar.mininterval == seconds
    assert "5/5" in stream.getvalue()
