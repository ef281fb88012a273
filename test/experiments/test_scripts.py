"""All scripts in one process: no two of them define the same flag, and none needs TensorFlow to say
what it can do."""

import pathlib
import subprocess
import sys

from sparse_embed import experiments

SCRIPTS = sorted(
    path.stem
    for path in pathlib.Path(experiments.__file__).parent.glob("*.py")
    if "app.run(main, " in path.read_text()
)


def test_scripts_do_not_get_in_each_others_way():
    imports = "".join(f"import sparse_embed.experiments.{name}\n" for name in SCRIPTS)
    code = imports + "import sys\nassert 'tensorflow' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert {"train", "embed", "search", "reproduce"} <= set(SCRIPTS)
