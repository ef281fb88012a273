"""What the comparison on glyphs draws and embeds; the searches have tests of their own."""

import os

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed import models
from sparse_embed.datasets import glyph_sets
from sparse_embed.experiments.evaluate_glyphs import draw_sets, embed_sets
from sparse_embed.experiments.evaluation import embedding_files
from sparse_embed.experiments.runs import save_run
from sparse_embed.retrieval import hash_codes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return draw_sets(tmp_path_factory.mktemp("images"), 600, probe_classes=6, pairs=40)


@pytest.mark.parametrize("kind", ["dense", "sparse", "sdh"])
def test_sets_are_embedded_once(files, tmp_path, kind, capsys):
    activation = "relu" if kind == "sparse" else "none"
    encoder = models.build_encoder("convnet", 16, activation, (32, 32, 1), width=0.2)
    objective = {"loss": "sdh" if kind == "sdh" else "arcface", "active_bits": 3}
    config = {"model": {"activation": activation}, "objective": objective}
    save_run(tmp_path, encoder, {"config": config})
    products = embed_sets(tmp_path, files)
    assert set(products) == (
        {"identification"} if kind == "sdh" else {"identification", "easy", "hard"}
    )
    found = embedding_files.load(products["identification"])
    assert (found.labels[-600:] == -1).all()
    assert set(found.labels[:-600]) == set(range(6))
    batches = glyph_sets.stored_batches(files["identification"], found.labels, 200)
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
    capsys.readouterr()
    embed_sets(tmp_path, files)
    assert capsys.readouterr().out.count("done before") == len(products)
    os.utime(tmp_path / "encoder.keras")  # trained again
    embed_sets(tmp_path, {"identification": files["identification"]})
    assert "embedding" in capsys.readouterr().out


def test_images_are_drawn_once(files):
    before = {path: path.stat().st_mtime_ns for path in files.values()}
    folder = files["easy"].parent
    assert draw_sets(folder, 600, probe_classes=6, pairs=40) == files
    assert {path: path.stat().st_mtime_ns for path in files.values()} == before
