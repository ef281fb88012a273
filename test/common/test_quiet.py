"""What a newcomer sees of TensorFlow's start: nothing, unless it fails or they ask."""

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
