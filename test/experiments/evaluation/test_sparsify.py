"""`sparsify`, from files to files."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import call

from sparse_embed.common.files import unfinished
from sparse_embed.retrieval import SparseIndex
from sparse_embed.sparsify import Sparsifier

FEW = ["--code_dim=64", "--learning_steps=60", "--num_threads=2"]


def script(name, *flags, code=0):
    done = subprocess.run(
        [sys.executable, "-m", f"sparse_embed.experiments.{name}", *map(str, flags)],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """1,000 rows of 24 dimensions in 50 classes."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(50), 20)
    x = (rng.normal(size=(50, 24))[labels] + 0.4 * rng.normal(size=(1000, 24)) + 2).astype("f4")
    np.save(folder / "x.npy", x)
    np.save(folder / "labels.npy", labels)
    return folder


def test_an_index_and_a_head_to_load(rows, tmp_path):
    output = tmp_path / "made"
    flags = [f"--embeddings={rows / 'x.npy'}", f"--labels={rows / 'labels.npy'}", "--flops=1"]
    done = script("sparsify", *flags, *FEW, f"--output={output}")
    assert sorted(path.name for path in output.iterdir()) == [
        "codes.index",
        "record.json",
        "sparsifier.keras",
        "trade_off.png",
    ]
    assert "exhaustive dense" in done.stdout
    x = np.load(rows / "x.npy")
    index = SparseIndex.load(output / "codes.index")
    codes = Sparsifier.load(output / "sparsifier.keras").transform(x)
    assert index.shape == (1000, 64)
    _, ids = index.search(codes[:50], k=1)
    np.testing.assert_array_equal(ids[:, 0], np.arange(50))
    record = json.loads((output / "record.json").read_text())
    assert record["flops_per_row"] <= 1
    methods = {entry["method"]: entry for entry in record["records"]}
    assert methods["exhaustive dense"]["recall_at_10"] == 1
    assert methods["sparse"]["recall_at_10"] > 0.2
    assert methods["sparse, re-ranked"]["recall_at_10"] > methods["sparse"]["recall_at_10"]
    assert {"HNSW", "IVF-PQ", "IVF-PQ, re-ranked"} <= set(methods)

    unfinished(output).parent.mkdir()  # as a kill right after the rename leaves it
    again = script("sparsify", *flags, *FEW, f"--output={output}", code=2)
    assert os.listdir(tmp_path) == ["made"]
    assert "expected a folder that does not exist yet" in again.stderr


def broken(name, folder):
    x = np.load(folder / "x.npy")
    if name == "nan":
        x[700, 3] = np.nan
    if name == "flat":
        x = x[0]
    if name == "few":
        x = x[:5]
    if name == "text":
        x = x.astype(str)
    return x


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("nan", [], "row 700 is not finite"),
        ("flat", [], "expected numbers (rows, dimensions), got (24,)"),
        ("few", [], "5 rows: expected at least 20"),
        ("text", [], "of <U"),
        (
            "",
            ["--labels=short.npy"],
            "short.npy: expected 1000 labels, integers or strings, got (3,)",
        ),
        ("", ["--labels=one.npy"], "y has one class"),
        ("", ["--flops=0.001"], "flops=0.001: expected at least 1 / dim"),
        ("", ["--embeddings=absent.npy"], "--embeddings=absent.npy: expected a file that exists"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    rows, tmp_path, monkeypatch, name, more, message, capsys
):
    from sparse_embed.common.failures import Failure

    monkeypatch.chdir(tmp_path)
    np.save("short.npy", np.arange(3))
    np.save("one.npy", np.zeros(1000, int))
    np.save("x.npy", broken(name, rows))
    before = sorted(os.listdir())
    with pytest.raises(Failure) as caught:
        call("sparsify", "--embeddings=x.npy", "--flops=1", "--output=made", *FEW, *more)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2
    assert sorted(os.listdir()) == before
