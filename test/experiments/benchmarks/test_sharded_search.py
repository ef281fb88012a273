"""The benchmark of shards, small, on a real Ray."""

import importlib.util
import json
import subprocess
import sys
import tempfile

import pytest


@pytest.mark.engines
def test_shards_are_compared_timed_and_killed(tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'sparse-embed[distributed]'")
    command = [sys.executable, "-m", "sparse_embed.experiments.benchmark_shards"]
    command += [f"--index_folder={tmp_path}", "--rows=3000", "--batch_rows=1000", "--dims=64"]
    command += ["--nnz=8", "--k=5", "--shards=2", "--compared=64", "--kills=2", "--num_threads=1"]
    command += [f"--output={tmp_path / 'shards.json'}"]
    with tempfile.TemporaryDirectory(prefix="ray") as temporary:
        command += [f"--ray_temp_folder={temporary}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((tmp_path / "shards.json").read_text())
    assert content["settings"]["rows"] == 3000
    stages = {record["stage"]: record for record in content["records"]}
    assert sum(record.get("queries", 0) for record in stages.values()) == 5 * 64
    assert stages["batch of 64, shards on Ray"]["seconds"] > 0
    kills = stages["kills"]
    assert len(kills["recovery_seconds"]) == 2
    assert kills["begun"] == kills["right"] > 0
    assert [kills[name] for name in ("wrong", "lost", "late", "named_error")] == [0, 0, 0, 0]
    assert kills["other_errors"] == {}
