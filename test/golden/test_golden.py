"""Files of earlier versions open, with the answers that these versions gave; see `make.py`."""

import importlib.util
import json
import pathlib
import shutil

import h5py
import keras
import numpy as np
import pytest
from golden import make
from packaging.version import parse

from sparse_embed import losses, models
from sparse_embed.common.arrays import read_npz
from sparse_embed.common.failures import DataError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.embedding import embed_part
from sparse_embed.experiments.encoders.encoder import open_encoder
from sparse_embed.experiments.training import loop
from sparse_embed.retrieval import SparseIndex, index_file, shard_folder
from sparse_embed.retrieval.merging import merge_results
from sparse_embed.sparsify import Sparsifier


def golden(pattern):
    """All golden files or folders of a kind, as parameters of a test."""
    found = sorted(make.HERE.glob(f"*/{pattern}"))
    assert found
    names = [str(path.relative_to(make.HERE)) for path in found]
    return pytest.mark.parametrize("path", found, ids=names)


def skip_older_keras(path):
    """Keras reads no files of its own later versions."""
    versions = json.loads((path.parent / "run" / "train.json").read_text())["provenance"][
        "versions"
    ]
    if parse(keras.__version__) < parse(versions["keras"]):
        pytest.skip(f"written by Keras {versions['keras']}")


def answers(path):
    return read_npz(path.with_name(f"{path.stem}.answers.npz"))


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A function that copies a golden folder, goes there, and returns the copy of a path in it."""

    def make_copy(path):
        folder = shutil.copytree(path.parent, tmp_path / "copy")
        monkeypatch.chdir(folder)
        return pathlib.Path(path.name)

    return make_copy


@golden("*.index")
@pytest.mark.parametrize("mmap", [True, False])
def test_indexes_answer_as_they_did(path, mmap):
    index, expected = SparseIndex.load(path, mmap=mmap, verify=True), answers(path)
    asked = make.more_index_answers if "ids" in expected else make.index_answers
    found = asked(index, expected["queries"])
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@golden("*.index")
def test_indexes_go_on_and_are_saved_in_the_present_format(path, tmp_path):
    index, expected = SparseIndex.load(path), answers(path)
    new = index.add(expected["queries"])
    assert index.remove(new) == len(new)
    index.save(tmp_path / "new.index")
    index = SparseIndex.load(tmp_path / "new.index", verify=True)
    scores, ids = index.search(expected["queries"], 10)
    np.testing.assert_array_equal(scores, expected["best_scores"])
    np.testing.assert_array_equal(ids, expected["best_ids"])


def test_there_is_an_index_of_every_format():
    headers = [path.read_bytes()[:16] for path in make.HERE.glob("*/*.index")]
    versions = {int.from_bytes(header[12:], "little") for header in headers}
    assert versions == {*range(1, index_file.VERSION + 1)}


def test_a_format_of_the_future_is_refused_by_its_number(tmp_path):
    content = bytearray((make.HERE / "0.2.0" / "ids.index").read_bytes())
    content[12:16] = (index_file.VERSION + 1).to_bytes(4, "little")
    path = tmp_path / "future.index"
    path.write_bytes(content)
    message = f"future.index: format version {index_file.VERSION + 1}: this release reads"
    with pytest.raises(DataError, match=message):
        SparseIndex.load(path)


@golden("shards")
def test_shards_answer_as_they_did_and_go_on(path, copy):
    expected, folder = answers(path), copy(path)
    queries, k = expected["queries"], expected["ids"].shape[1]

    def search():
        manifest = shard_folder.read(folder)
        shards = [shard_folder.open_shard(folder, s, manifest.dims) for s in manifest.shards]
        return merge_results([shard.search(queries, k) for shard in shards], k)

    for _ in range(2):
        scores, ids = search()
        np.testing.assert_array_equal(scores, expected["scores"])
        np.testing.assert_array_equal(ids, expected["ids"])
        _, new = shard_folder.add(folder, queries)
        assert new.min() > expected["ids"].max()
        shard_folder.remove(folder, new)


def test_shards_of_the_future_are_refused_by_their_number(copy):
    folder = copy(make.HERE / "0.2.0" / "shards")
    manifest = folder / shard_folder.MANIFEST
    content = json.loads(manifest.read_text())
    content["version"] += 1
    manifest.write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"version {content['version']}: this release reads"):
        shard_folder.read(folder)


@golden("sparsifier.keras")
def test_sparsifiers_transform_as_they_did(path):
    skip_older_keras(path)
    expected = answers(path)
    found = Sparsifier.load(path).transform(expected["rows"]).toarray()
    np.testing.assert_allclose(found, expected["codes"], atol=1e-5)


@golden("layers.keras")
def test_models_of_our_layers_compute_and_train_as_they_did(path):
    """With the steps, controllers and counts that the layers keep."""
    skip_older_keras(path)
    expected, model = answers(path), keras.models.load_model(path)
    own = {
        name
        for package in (losses, models)
        for name, kind in vars(package).items()
        if isinstance(kind, type) and issubclass(kind, keras.layers.Layer)
    } - {"ActivationRegularization"}
    assert own == {type(layer).__name__ for layer in model.layers} & own
    found = make.layers_answers(model, expected["rows"], expected["labels"])
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@golden("run")
def test_runs_are_opened_and_embed_as_they_did(path, copy):
    skip_older_keras(path)
    run = Run.open(copy(path))
    assert run.method == "df_flops"
    expected = embedding_files.load(path.with_name("sparse.npz"))
    assert expected.config == run.config
    found, _ = embed_part(run, open_encoder(run.folder), None, "test")
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.vectors.toarray(), expected.vectors.toarray(), atol=1e-5)
    features, _ = embed_part(run, run.backbone(), None, "test", sparse=False)
    kept = embedding_files.load(path.with_name("features.npy"))
    np.testing.assert_array_equal(kept.labels, expected.labels)
    np.testing.assert_allclose(features.vectors, kept.vectors, atol=1e-5)


@pytest.mark.skipif(not importlib.util.find_spec("ai_edge_litert"), reason="needs LiteRT")
@golden("run")
def test_exported_encoders_embed_as_they_did(path, copy):
    expected, run = answers(path), Run.open(copy(path))
    encoder = open_encoder(run.folder, "litert")
    found, _ = embed_part(run, encoder, None, "train", sparse=False)
    np.testing.assert_array_equal(found.labels, expected["labels"])
    np.testing.assert_allclose(found.vectors, expected["vectors"], atol=1e-5)


@golden("unfinished")
def test_runs_that_were_stopped_go_on_to_where_they_would_have_come(path, copy):
    """The end is that of the run that was not stopped, whose record has all its steps."""
    skip_older_keras(path)
    stopped = copy(path)
    whole = Run.open(stopped.with_name("run"))
    began = (stopped / "curves.json").read_bytes()
    with h5py.File(stopped / "checkpoints" / "last.weights.h5", "r+") as file:
        file["interval"].attrs["seconds"] = 1000.0  # that the last steps before the stop took
    run = loop.train(whole.config, stopped, make.INTERVALS)
    assert run.record["curves"][: len(json.loads(began))] == json.loads(began)
    assert [row["step"] for row in run.record["curves"]] == [4, 8, 12]
    assert run.record["curves"][1]["seconds"] > 1000
    for row, expected in zip(run.record["curves"], whole.record["curves"], strict=True):
        for name in ("loss", "metric_loss", "penalty", "regularizer_weight"):
            np.testing.assert_allclose(row[name], expected[name], rtol=1e-3, err_msg=name)
    for new, old in zip(run.encoder().get_weights(), whole.encoder().get_weights(), strict=True):
        np.testing.assert_allclose(new, old, atol=1e-3)


def test_golden_files_stay_as_they_are():
    """Their sums were written with them; none is lost, changed or put beside the others."""
    found = {}
    for folder in make.HERE.iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            found |= make.sums(folder)
    lines = make.SUMS.read_text().splitlines()
    assert found == dict(line.rsplit(" ", 1) for line in lines)
