"""What a newcomer sees of TensorFlow's and matplotlib's start: nothing, unless it fails."""

import os
import subprocess
import sys

CODE = """
import importlib.util, sys
from sparse_embed.common.quiet import quiet_tensorflow
quiet_tensorflow()
assert importlib.util.find_spec("tensorflow")  # looking for it changes nothing
import tensorflow as tf
assert float(tf.reduce_sum([1.0, 2.0])) == 3
print("ours", file=sys.stderr)
"""


def run(code, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=kept | environment
    )


def test_nothing_but_ours_is_on_stderr():
    done = run(CODE)
    assert done.returncode == 0
    assert done.stderr == "ours\n"


def test_who_asks_for_messages_gets_them():
    done = run(CODE, TF_CPP_MIN_LOG_LEVEL="0")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) > 1


def test_a_failure_shows_what_was_said_before_it(tmp_path):
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("import os\nos.write(2, b'a clue')\nraise OSError('gone')")
    code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{CODE}"
    done = run(code)
    assert done.returncode == 1
    assert "a clue" in done.stderr
    assert "OSError: gone" in done.stderr


def test_a_process_that_a_script_starts_is_silent_too():
    inner = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CODE!r}], check=True)"
    done = run(
        f"from sparse_embed.common.quiet import quiet_tensorflow\nquiet_tensorflow()\n{inner}"
    )
    assert done.returncode == 0
    assert done.stderr == "ours\n"


def test_fonts_are_found_in_silence_on_a_new_machine(tmp_path):
    """matplotlib logs at the level of absl's, which a script's start makes visible."""
    code = """
import os
from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app
from sparse_embed.flags.options.sparsify import Options

def main(options):
    import matplotlib.font_manager
    assert os.listdir(matplotlib.get_cachedir())  # it has just looked for fonts
    raise UsageError("ours")

app.run(main, Options)
"""
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    done = run(code, **home, MPLCONFIGDIR=str(tmp_path / "matplotlib"))
    assert done.returncode == 2, done.stderr
    assert "fontManager" not in done.stderr
    assert done.stderr.splitlines()[-1] == "-c: ours"
