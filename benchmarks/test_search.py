"""The benchmark of search, on a workload of seconds."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from workload import make_workload

from sparse_embed.retrieval import flops_per_row, suboptimality_ratio

HERE = pathlib.Path(__file__).parent


def run(*arguments):
    command = [sys.executable, HERE / "search.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("signed", [False, True])
def test_workload_is_as_described(signed):
    database, queries = make_workload(20_000, 256, 16, 50, signed)
    assert database.shape == (20_000, 256)
    assert queries.shape == (50, 256)
    norms = np.sqrt(database.multiply(database).sum(axis=1))
    np.testing.assert_allclose(norms, 1, atol=1e-5)
    assert 15 < database.nnz / 20_000 < 17
    assert (database.data < 0).any() == signed
    assert 1.08 < suboptimality_ratio(database) < 1.25
    assert flops_per_row(database) == pytest.approx(1.16, abs=0.15)  # 256 * (16 / 256)^2 * 1.16
    best = np.sort((queries @ database.T).toarray(), axis=1)
    assert np.median(best[:, -1]) > 0.7  # of the same cluster
    assert np.median(best[:, -30]) < 0.6


def test_the_script_checks_times_and_saves(tmp_path):
    done = run(
        "--rows=12000",
        "--dims=256",
        "--nnz=16",
        "--num_queries=12",
        "--k=20",
        "--dense_dims=32",
        "--methods=SparseIndex,less_effort,Algorithm1,SciPy,dense",
        "--threshold=0.2",
        "--growth",
        "--sweep",
        f"--output={tmp_path / 'speed.json'}",
    )
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "speed.json").read_text())
    records = content["records"]
    assert [r["milliseconds_per_query"] for r in records] == sorted(
        r["milliseconds_per_query"] for r in records
    )
    assert {"SparseIndex", "SparseIndex, batch", "Algorithm1", "SciPy", "dense"} <= {
        r["method"] for r in records
    }
    assert all(r["recall"] == 1 for r in records if r["method"] != "less_effort")
    swept = content["sweep"]
    assert {(r["k"], r["threshold"]) for r in swept} == {
        (k, threshold) for k in (1, 10, 100, 1000) for threshold in (None, 0.2)
    }
    assert {r["method"] for r in swept} == {r["method"] for r in records}
    assert {r["rows"] for r in content["growth"]} == {10_000, 12_000}
    assert content["provenance"]["hardware"]
    for name in ("speed.png", "speed_k.png", "speed_rows.png"):
        assert (tmp_path / name).stat().st_size > 1000
    assert "ms/query" in done.stdout


def test_a_workload_can_be_read(tmp_path):
    database, queries = make_workload(500, 64, 8, 4)
    scipy.sparse.save_npz(tmp_path / "x.npz", database)
    scipy.sparse.save_npz(tmp_path / "q.npz", queries)
    files = [f"--database={tmp_path / 'x.npz'}", f"--query_file={tmp_path / 'q.npz'}"]
    output = tmp_path / "speed.json"
    done = run(
        *files,
        "--methods=Algorithm1,dense,baselines",
        "--threshold=none",
        "--k=40",
        "--dense_dims=64",
        "--num_threads=1",
        f"--output={output}",
    )
    assert done.returncode == 0, done.stderr
    assert "threshold=None" in done.stdout
    recalls = {r["method"]: r["recall"] for r in json.loads(output.read_text())["records"]}
    assert recalls["Algorithm1"] == recalls["dense"] == 1
    assert 0.3 < recalls["lsh"] < 1
    assert 0.3 < recalls["pca"] <= 1
    assert {"ivfpq", "hnsw"} <= recalls.keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods=nothing"], "--methods=nothing: expected some of SparseIndex"),
        (["--output=x.txt"], "--output=x.txt: expected the name of a .json file"),
        (["--growth"], "--growth: expected --output=FILE.json"),
        (["--database=/absent.npz"], "--database=/absent.npz: expected a file that exists"),
        (["--rows=0"], "rows"),
        (["--dense_dims=12"], "--dense_dims=12: expected a multiple of 8"),
    ],
)
def test_mistakes_cost_one_line(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
