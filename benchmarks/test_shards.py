"""The benchmark of shards, small, on a real Ray."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import large_index
import numpy as np
import pytest
import sharded_search

from sparse_embed.common.failures import Failure
from sparse_embed.retrieval import SparseIndex

HERE = pathlib.Path(__file__).parent


def test_queries_come_from_the_clusters_of_all_rows(tmp_path):
    sizes = (6000, 256, 16, 90, 2000)  # three batches of rows
    _, one = sharded_search.build(tmp_path, *sizes, shards=2, num_threads=1)
    queries = sharded_search.make_queries(*sizes)
    found = [one.search(batch, k=1) for batch in queries]
    scores, ids = (np.concatenate(parts)[:, 0] for parts in zip(*found, strict=True))
    others = one.search(one.reconstruct(np.arange(0, 6000, 50)), k=2)[0][:, 1]
    assert np.median(scores) > np.median(others) - 0.05
    assert (np.bincount(ids // 2000, minlength=3) >= 20).all()
    with pytest.raises(Failure, match="holds rows of other"):
        sharded_search.build(tmp_path, 6000, 256, 16, 60, 2000, shards=2, num_threads=1)


def test_the_large_index_is_asked_for_neighbours_of_all_its_rows(tmp_path, monkeypatch):
    asked = []
    search = SparseIndex.search

    def watched(self, queries, *rest):
        answer = search(self, queries, *rest)
        asked.append((answer[0][0, 0], answer[1][0, 0]))
        return answer

    monkeypatch.setattr(SparseIndex, "search", watched)
    large_index.measure(tmp_path / "a.index", 6000, 256, 16, 2000, k=1, num_threads=1)
    scores, ids = np.array(asked).T
    assert (np.bincount(ids.astype(int) // 2000, minlength=3) >= 2 * 20).all()
    assert np.quantile(scores, 0.1) > 0.5


@pytest.mark.engines
def test_shards_are_compared_timed_and_killed(tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'sparse-embed[distributed]'")
    command = [sys.executable, HERE / "shards.py"]
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
