"""The real scripts, one after the other, on a short run: train, embed, search."""

import json
import subprocess
import sys

import numpy as np
import pytest

from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import Run

STEPS = 60


def run(script, *arguments):
    command = [sys.executable, "-m", f"sparse_embed.experiments.{script}", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A dense and a sparse run, with the embeddings of the validation classes."""
    folder = tmp_path_factory.mktemp("runs")
    kinds = {
        "dense": ["--activation=none", "--regularizer=none", "--embedding_dim=32"],
        "sparse": ["--regularizer_weight=30", "--warmup_steps=40", "--embedding_dim=128"],
    }
    for name, flags in kinds.items():
        flags += [f"--steps={STEPS}", "--batch_size=128", "--summary_every=25"]
        run("train", *flags, f"--model_dir={folder / name}")
        output = folder / f"{name}{'.npz' if name == 'sparse' else '.npy'}"
        run(
            "embed",
            f"--model_dir={folder / name}",
            "--split=validation",
            "--views=2",
            f"--output={output}",
        )
    return folder


def test_training_is_recorded(runs):
    record = json.loads((runs / "sparse" / "train.json").read_text())
    assert record["config"]["optimization"]["steps"] == STEPS
    assert record["config"]["objective"]["regularizer_weight"] == 30
    assert record["num_classes"] > 1024
    assert record["provenance"]["versions"]["tensorflow"]
    assert [row["step"] for row in record["curves"]] == [25, 50, 60]
    # lambda(t) = 30 min(1, t/40)^2; the 25th step is t = 24.
    weights = [row["regularizer_weight"] for row in record["curves"]]
    assert weights == pytest.approx([30 * (24 / 40) ** 2, 30, 30])


def test_embeddings_are_unit_norm_and_labelled(runs):
    sparse = embedding_files.load(runs / "sparse.npz")
    dense = embedding_files.load(runs / "dense.npy")
    assert sparse.vectors.shape == (len(dense.labels), 128)
    np.testing.assert_array_equal(sparse.labels, dense.labels)
    np.testing.assert_allclose(np.linalg.norm(dense.vectors, axis=1), 1, rtol=1e-5)
    norms = np.sqrt(sparse.vectors.multiply(sparse.vectors).sum(axis=1))
    np.testing.assert_allclose(norms[norms > 0], 1, rtol=1e-5)
    assert (sparse.vectors.data > 0).all()
    assert sparse.vectors.nnz < 0.5 * np.prod(sparse.vectors.shape)
    assert sparse.provenance["split"] == "validation"


def test_search_finds_far_more_than_chance(runs):
    result = run(
        "search",
        f"--database={runs / 'sparse.npz'}",
        f"--dense_database={runs / 'dense.npy'}",
        f"--output={runs / 'search.json'}",
    )
    records = json.loads((runs / "search.json").read_text())["records"]
    assert [record["method"] for record in records] == [
        "sparse",
        "sparse, re-ranked",
        "exhaustive dense",
    ]
    classes = len(np.unique(embedding_files.load(runs / "dense.npy").labels))
    for record in records:
        assert record["recall_at_1"] > 20 / classes
        assert record["method"] in result.stdout
    assert "re-ranked: at most 1000 rows scoring at least 0.25" in result.stdout


def test_a_head_is_trained_on_what_embed_wrote(runs):
    """--dataset=dense_embeddings takes the .npy, whose labels lie beside it."""
    flags = ["--dataset=dense_embeddings", f"--data_dir={runs / 'dense.npy'}", "--model=linear"]
    short = ["--steps=5", "--batch_size=64", "--embedding_dim=64", "--test=50"]
    run("train", *flags, *short, f"--model_dir={runs / 'head'}")
    output = runs / "head.npz"
    run("embed", f"--model_dir={runs / 'head'}", f"--output={output}")
    assert embedding_files.load(output).vectors.shape[1] == 64
    record = json.loads((runs / "head" / "train.json").read_text())
    classes = len(np.unique(embedding_files.load(runs / "dense.npy").labels))
    assert record["num_classes"] == classes - 50


def test_features_give_the_embeddings_of_the_head_alone(runs):
    """--features writes what the embedding layer gets: its own layers make the embeddings of it."""
    flags = [f"--model_dir={runs / 'sparse'}", "--split=validation", "--views=2"]
    run("embed", *flags, "--features", f"--output={runs / 'features' / 'train.npy'}")
    features = embedding_files.load(runs / "features" / "train.npy")
    expected = embedding_files.load(runs / "sparse.npz")
    np.testing.assert_array_equal(features.labels, expected.labels)
    found = features.vectors
    for layer in Run.open(runs / "sparse").encoder().layers[-4:]:
        found = layer(found)
    np.testing.assert_allclose(found, expected.vectors.toarray(), atol=1e-5)

    short = ["--model=linear", "--steps=2", "--batch_size=64", "--embedding_dim=8"]
    data = ["--dataset=dense_embeddings", f"--data_dir={runs / 'features'}"]
    run("train", *data, *short, f"--model_dir={runs / 'new_head'}")


def test_mismatched_files_are_refused(runs):
    command = [sys.executable, "-m", "sparse_embed.experiments.search"]
    wrong = [f"--database={runs / 'dense.npy'}"]
    result = subprocess.run([*command, *wrong], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert "expected sparse" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
