"""What a comparison draws and embeds; the searches have tests of their own."""

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed import models
from sparse_embed.datasets import catalogue, evaluation_sets
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.core.run import save as save_run
from sparse_embed.experiments.encoders.embedding import embed_sets
from sparse_embed.retrieval import hash_codes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return evaluation_sets.draw_all(
        tmp_path_factory.mktemp("images"), catalogue.load("glyphs"), 600, probe_classes=6, pairs=40
    )


@pytest.mark.parametrize("kind", ["dense", "sparse", "sdh"])
def test_sets_are_embedded_beside_the_encoder(files, tmp_path, kind):
    activation = "relu" if kind == "sparse" else "none"
    encoder = models.build_encoder("convnet", 16, activation, (32, 32, 1), width=0.2)
    objective = {"loss": "sdh" if kind == "sdh" else "arcface", "active_bits": 3}
    config = {"model": {"activation": activation}, "objective": objective}
    run = save_run(tmp_path, encoder, {"config": config})
    products = {path.stem: path for path in embed_sets(run, list(files.values()))}
    assert {path.parent for path in products.values()} == {tmp_path}
    assert set(products) == (
        {"identification"} if kind == "sdh" else {"identification", "easy", "hard"}
    )
    found = embedding_files.load(products["identification"])
    assert (found.labels[-600:] == -1).all()
    assert set(found.labels[:-600]) == set(range(6))
    batches = evaluation_sets.stored_batches(files["identification"], found.labels, 200)
    expected = encoder(tf.concat([images for images, _ in batches], 0), training=False).numpy()
    if kind == "dense":
        assert found.vectors.dtype == np.float16
        np.testing.assert_allclose(found.vectors, expected, atol=1e-3)
    elif kind == "sparse":
        np.testing.assert_allclose(found.vectors.toarray(), expected, atol=1e-5)
    else:
        np.testing.assert_array_equal(found.vectors.toarray(), hash_codes(expected, 3).toarray())
    for name in set(products) & {"easy", "hard"}:
        labels = embedding_files.load(products[name]).labels
        np.testing.assert_array_equal(labels[::2] == labels[1::2], np.arange(40) % 2 == 0)


def test_every_weight_of_a_path_has_its_own(files, tmp_path):
    config = {"model": {"activation": "relu"}, "objective": {"reg_path": "1,2"}}
    for folder in ("", "path/lambda_1", "path/lambda_2"):
        encoder = models.build_encoder("convnet", 16, "relu", (32, 32, 1), width=0.2)
        run = save_run(tmp_path / folder, encoder, {"config": config})
    found = embed_sets(Run.open(tmp_path), [files["easy"]])
    assert found == [tmp_path / f"path/lambda_{weight}/easy.npz" for weight in (1, 2)]
    one, two = (embedding_files.load(path).vectors for path in found)
    assert abs(one - two).max() > 0.01  # each by its own encoder
    assert run.name == "lambda_2"
