"""A run in half precision, re-ranked by a dense one while it trains and exported at its end."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sparse_embed.datasets import dense_embeddings
from sparse_embed.datasets.examples import split_by_class
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.encoder import open_encoder


def script(name, *arguments):
    command = [sys.executable, "-m", f"sparse_embed.experiments.{name}", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def runs(vectors, tmp_path_factory):
    """The folders of a dense run and of a sparse one that looks at it."""
    folder = tmp_path_factory.mktemp("runs")
    common = ["--dataset=dense_embeddings", f"--data_dir={vectors}", "--model=linear"]
    common += ["--steps=30", "--summary_every=10", "--batch_size=32", "--validation=8"]
    dense = ["--activation=none", "--regularizer=none", "--embedding_dim=4"]
    sparse = ["--precision=mixed_float16", "--embedding_dim=16", "--export=saved_model"]
    sparse += [f"--rerank_model_dir={folder / 'dense'}", "--evaluate_every=10"]
    script("train", *common, *dense, f"--model_dir={folder / 'dense'}")
    script("train", *common, *sparse, f"--model_dir={folder / 'sparse'}")
    return folder


@pytest.fixture(scope="module")
def validation(vectors):
    """The validation classes, as arrays."""
    part = split_by_class(dense_embeddings.load(vectors), validation=8).validation
    return np.load(vectors)["embeddings"][part.rows], part.labels


def test_half_precision_trains_every_step_with_finite_losses(runs):
    record = json.loads((runs / "sparse/train.json").read_text())
    assert record["config"]["distribution"]["precision"] == "mixed_float16"
    assert [row["step"] for row in record["curves"]] == [10, 20, 30]
    assert np.isfinite([row["loss"] for row in record["curves"]]).all()
    assert record["curves"][-1]["loss"] < record["curves"][0]["loss"]


def test_embeddings_of_half_precision_are_float32_of_unit_norm(runs, validation):
    encoder = Run.open(runs / "sparse").encoder()
    assert encoder.get_layer("embedding_linear").compute_dtype == "float16"
    rows = encoder(validation[0]).numpy()
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_saved_model_gives_the_embeddings_of_the_keras_file(runs, validation):
    expected = Run.open(runs / "sparse").encoder()(validation[0]).numpy()
    assert np.count_nonzero(expected) > len(expected)
    found = open_encoder(runs / "sparse", "saved_model").encode(validation[0])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    output = runs / "sparse.npz"
    flags = [f"--model_dir={runs / 'sparse'}", "--split=validation", f"--output={output}"]
    script("embed", *flags, "--encoder=saved_model")
    rows = embedding_files.load(output)
    np.testing.assert_allclose(rows.vectors.toarray(), expected, atol=1e-6)
    np.testing.assert_array_equal(rows.labels, validation[1])


def test_reranked_evaluation_equals_an_independent_one(runs, validation):
    """Among the rows with a sparse score >= 0.25, the dense score decides; never oneself."""
    examples, labels = validation
    sparse = Run.open(runs / "sparse").encoder()(examples).numpy()
    dense = Run.open(runs / "dense").encoder()(examples).numpy()
    scores = np.where(sparse @ sparse.T >= 0.25, dense @ dense.T, -np.inf)
    np.fill_diagonal(scores, -np.inf)
    hits = (labels[scores.argmax(axis=1)] == labels) & np.isfinite(scores.max(axis=1))
    assert 0.1 < hits.mean() < 1

    events = EventAccumulator(str(runs / "sparse/tensorboard"), size_guidance={"tensors": 0})
    events.Reload()
    written = events.Tensors("evaluation/recall_at_1_reranked")
    assert [event.step for event in written] == [10, 20, 30]
    assert float(tf.make_ndarray(written[-1].tensor_proto)) == pytest.approx(hits.mean(), abs=1e-6)
