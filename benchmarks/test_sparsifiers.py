"""Ways to sparse codes, compared on classes that none has seen."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import sparsifiers

HERE = pathlib.Path(__file__).parent


def run(*arguments):
    command = [sys.executable, HERE / "sparsifiers.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_comparison_on_unseen_classes(tmp_path):
    """1,000 rows of 24 dimensions in 50 classes."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(50), 20)
    rows = (rng.normal(size=(50, 24))[labels] + 0.4 * rng.normal(size=(1000, 24)) + 2).astype("f4")
    np.savez(tmp_path / "both.npz", embeddings=rows, labels=labels)
    labelled, output = f"--labelled={tmp_path / 'both.npz'}", tmp_path / "compared.json"
    done = run(
        labelled,
        "--splits=1,2",
        "--code_nonzeros=6",
        "--code_dim=48",
        "--ways=random,random with a threshold,linear head,Sparsifier",
        f"--output={output}",
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(output.read_text())
    found = {(entry["method"], entry["split"]): entry for entry in record["records"]}
    assert record["held_out"] == 25
    for split in (1, 2):
        assert found["Sparsifier", split]["nonzeros"] <= 6
        assert found["Sparsifier", split]["recall_at_1"] > 0.5
        assert found["random with a threshold", split]["nonzeros"] == pytest.approx(6, abs=1)
        dense = found["exhaustive dense", split]["recall_at_1"]
        assert found["Sparsifier", split]["recall_at_1_reranked"] <= dense + 0.01
        assert ("HNSW, 16 links, ef 64", split) in found
    bad = run(labelled, "--held_out_classes=50", f"--output={output}")
    assert bad.returncode == 2
    assert "--held_out_classes=50: expected 1 to 49 of the 50 classes" in bad.stderr


def test_held_out_classes_are_not_learned():
    rows, labels = np.arange(60.0).reshape(30, 2), np.repeat(np.arange(10), 3)
    split = sparsifiers.draw(rows, labels, held_out=4, seed=1)
    assert len(np.unique(split.held_out_labels)) == 4
    assert not set(split.labels) & set(split.held_out_labels)
    assert len(split.rows) == len(split.labels) == 18
    assert not {*split.rows[:, 0]} & {*split.held_out[:, 0]}
