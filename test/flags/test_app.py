"""Mistakes on the command line of the real scripts: one line, exit code 2, no traceback."""

import os
import subprocess
import sys

import pytest

HEAD = """
from sparse_embed.flags import app
from sparse_embed.flags.options.sparsify import Options
"""


def run(script, *arguments):
    command = [sys.executable, "-m", f"sparse_embed.experiments.{script}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("train", ["--embeding_dim=5"], ["embeding_dim", "--help"]),
        ("train", ["--model_dir=x", "--model=vgg"], ["--model=vgg", "convnet", "resnet20"]),
        ("train", ["--model_dir=x", "--dataset=imagenet"], ["--dataset=imagenet", "glyphs"]),
        ("train", ["--model_dir=x", "--steps=0"], ["--steps=0"]),
        ("train", ["--model_dir=x", "--steps=many"], ["--steps=many"]),
        ("train", ["--model_dir=x", "steps=5"], ["steps=5", "--flag=value"]),
        ("train", ["--preset=vgg"], ["--preset=vgg", "glyphs_flops"]),
        ("train", ["--preset=" + "x" * 5000], ["--preset=xxx", "glyphs_flops"]),
        ("train", ["--preset=../presets/glyphs_dense"], ["--preset=../presets", "glyphs_flops"]),
        ("train", ["--stderrthreshold=loud"], ["--stderrthreshold", "loud"]),
        ("train", ["--model_dir=~nobody-of-this-name/x"], ["--model_dir=~nobody", "folder"]),
        ("train", ["--learning_rate=nan"], ["--learning_rate=nan", "finite"]),
        ("train", ["--preset", "cifar100_dense"], ["--dataset=cifar100 needs --data_dir"]),
        ("train", [], ["--model_dir", "not given"]),
        ("train", ["--model_dir={file}/x"], ["--model_dir={file}/x", "folder"]),
        (
            "train",
            ["--model_dir={nowhere}", "--rerank_model_dir={file}"],
            ["--rerank_model_dir={file}", "encoder.keras"],
        ),
        ("embed", ["--model_dir={nowhere}"], ["--model_dir={nowhere}", "train.json"]),
        ("embed", ["--source=files"], ["--source=files", "split, megaface, sets"]),
        ("embed", ["--source=sets", "--split=test"], ["split", "--help"]),
        ("search", ["--database={nowhere}"], ["--database={nowhere}", "exists"]),
        ("search", ["--database={file}"], ["--database={file}", "expected an embedding file"]),
        ("search", ["--threshold=0.5"], ["--threshold=0.5", "shortlist", "--dense_database"]),
        ("search", ["--k=5"], ["--k=5", "shortlist", "--dense_database"]),
        ("search", ["--threshold=low"], ["--threshold=low"]),
        ("report", ["--output=report.html"], ["output", "--help"]),
        ("evaluate_megaface", ["--what=gallery", "--k=5"], ["'k'", "--help"]),
        ("evaluate_verification", ["--distractors=5"], ["distractors", "--help"]),
        ("reproduce", ["--run_dir={file}"], ["--run_dir={file}", "folder"]),
    ],
)
def test_mistake_costs_one_line(tmp_path, script, arguments, expected):
    (tmp_path / "file").write_text("not a folder")
    paths = {"file": tmp_path / "file", "nowhere": tmp_path / "nowhere"}
    result = run(script, *[argument.format(**paths) for argument in arguments])
    assert result.returncode == 2
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith(f"{script}: ")
    for text in expected:
        assert text.format(**paths) in lines[0]


def test_help_names_the_flags():
    result = run("train", "--help")
    assert "--regularizer_weight" in result.stdout
    assert "lambda" in result.stdout
    assert "--preset" in result.stdout
    assert result.returncode == 0


def test_bugs_keep_their_traceback(tmp_path):
    script = tmp_path / "buggy.py"
    script.write_text(
        HEAD + "def main(options):\n    raise RuntimeError('a bug')\napp.run(main, Options)\n"
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "RuntimeError: a bug"
    assert f'File "{script}", line 5, in main' in result.stderr


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        ("app.UsageError('--x=1: expected\\n   2')", 2, "failing: --x=1: expected 2"),
        ("app.Failure('it diverged')", 1, "failing: it diverged"),
        (
            "OSError(28, 'No space left on device', 'a.npz')",
            4,
            "failing: a.npz: No space left on device",
        ),
        ("FileNotFoundError(2, 'No such file', 'b.npz')", 2, "failing: b.npz: No such file"),
        ("OSError('a text alone')", 2, "failing: a text alone"),
        ("MemoryError()", 4, "failing: out of memory"),
    ],
)
def test_failures_end_the_script_with_their_code_and_one_line(tmp_path, raised, code, line):
    script = tmp_path / "failing.py"
    script.write_text(HEAD + f"def main(options):\n    raise {raised}\napp.run(main, Options)\n")
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr, result.stdout) == (code, f"{line}\n", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_failures_need_nobody_to_tell(closed):
    """Closed streams, which Python has as None, change no exit code."""
    command = f'exec "$0" -m sparse_embed.experiments.search --k=5 {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(("raised", "code"), [("UsageError('x')", 2), ("MachineError('x')", 4)])
def test_a_program_that_calls_a_script_goes_on(tmp_path, raised, code):
    """It may have work of its own to save; what it has to do at its end is done."""
    program = tmp_path / "calling.py"
    program.write_text(
        "import atexit\n" + HEAD + "atexit.register(print, 'ended')\n"
        "def main(options):\n"
        f"    raise app.{raised}\n"
        "try:\n"
        "    app.run(main, Options)\n"
        "except SystemExit as end:\n"
        "    print(end.code)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{code}\nended\n")
    assert done.stderr == "calling: x\n"


def test_a_file_that_may_not_grow_is_of_the_machine(tmp_path):
    """The limit is real: Python ignores the signal, and gets EFBIG."""
    script = tmp_path / "growing.py"
    script.write_text(
        "import resource\n"
        "from sparse_embed.common.files import atomic_path\n" + HEAD + "def main(options):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "    with atomic_path('rows.bin') as temporary:\n"
        "        temporary.write_bytes(bytes(10_000))\n"
        "app.run(main, Options)\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (4, "growing: rows.bin: File too large\n")
    assert os.listdir(tmp_path) == ["growing.py"]


def test_what_main_returns_is_the_exit_code(tmp_path):
    script = tmp_path / "ending.py"
    script.write_text(HEAD + "app.run(lambda options: 3, Options)\n")
    assert subprocess.run([sys.executable, script], timeout=60).returncode == 3
