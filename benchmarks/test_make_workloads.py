"""Workloads that are not made up, and the benchmark of a large index, in small sizes."""

import email
import pathlib
import subprocess
import sys

import large_index
import make_workloads
import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import SparseIndex

HERE = pathlib.Path(__file__).parent


def run(script, *arguments):
    command = [sys.executable, HERE / f"{script}.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_split_takes_queries_out():
    rows = scipy.sparse.csr_array(np.diag(np.arange(1, 31, dtype=np.float32)))
    made = make_workloads.split(rows, 7)
    values = np.concatenate([made.database.data, made.queries.data])
    assert made.queries.shape == (7, 30)
    np.testing.assert_array_equal(np.sort(values), np.arange(1, 31))
    assert (np.diff(made.database.data) > 0).all()
    again = make_workloads.split(rows, 7)
    np.testing.assert_array_equal(made.queries.data, again.queries.data)
    with pytest.raises(ValueError, match="queries=30: expected fewer than the 30 rows"):
        make_workloads.split(rows, 30)


def test_passages_are_runs_of_lines(tmp_path):
    (tmp_path / "b.py").write_text("five\n")
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "c.py").write_bytes(b"\xff\xfe\xff")
    assert [*make_workloads.passages(tmp_path, 2)] == ["one\ntwo", "three", "five"]


def test_text_has_unit_rows_of_the_most_frequent_words():
    pytest.importorskip("sklearn")
    made = make_workloads.text(300, 200, 20, [str(pathlib.Path(email.__file__).parent)])
    assert made.queries.shape == (20, 200)
    assert 200 < made.database.shape[0] <= 300
    norms = np.sqrt(made.database.multiply(made.database).sum(axis=1))
    np.testing.assert_allclose(norms, 1, atol=1e-5)


def test_trained_embeddings_become_workloads(tmp_path):
    name, path = next(iter(make_workloads.TRAINED.items()))
    (tmp_path / path).parent.mkdir(parents=True)
    rows = scipy.sparse.random_array((60, 16), density=0.3, rng=0, dtype=np.float32, format="csr")
    scipy.sparse.save_npz(tmp_path / path, rows)
    flags = [f"--workload_dir={tmp_path / 'out'}", f"--run_dir={tmp_path}", "--held_out=10"]
    done = run("make_workloads", f"--workloads={name}", *flags)
    assert done.returncode == 0, done.stderr
    assert "50 rows, 16 dimensions" in done.stdout
    database, queries = (
        scipy.sparse.load_npz(tmp_path / "out" / f"{name}{suffix}")
        for suffix in (".npz", ".queries.npz")
    )
    assert (database.shape, queries.shape) == ((50, 16), (10, 16))
    assert database.nnz + queries.nnz == rows.nnz
    missing = run("make_workloads", f"--workloads={list(make_workloads.TRAINED)[1]}", *flags)
    assert missing.returncode == 2, missing.stderr
    assert "--run_dir" in missing.stderr


def test_a_large_index_is_built_saved_mapped_and_searched(tmp_path):
    found = large_index.measure(tmp_path / "a.index", 700, 64, 8, 300, k=5, num_threads=1)
    stages = [record["stage"] for record in found]
    assert stages == ["build", "save", "load", "first search, per query", "search, per query"]
    assert all(record["peak_bytes"] > 2**20 for record in found)
    assert SparseIndex.load(tmp_path / "a.index", verify=True).shape == (700, 64)
