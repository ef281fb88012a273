"""Each format of an encoder gives the embeddings of the Keras model, by one interface."""

import concurrent.futures
import importlib.util
import json
import subprocess
import sys

import keras
import numpy as np
import pytest

from sparse_embed.common import extras
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.experiments.core import embedding_files, run
from sparse_embed.experiments.encoders import export
from sparse_embed.experiments.encoders.embedding import embed_part
from sparse_embed.experiments.encoders.encoder import FORMATS, open_encoder
from sparse_embed.experiments.evaluation import formats
from sparse_embed.flags.options.fields import ENCODERS
from sparse_embed.flags.train_config import DataConfig, ModelConfig, TrainConfig
from sparse_embed.models import build_encoder

litert = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="needs ai-edge-litert"
)
LITERT = [name for name in FORMATS if name.startswith("litert")]
ALL = [pytest.param(name, marks=litert if name in LITERT else ()) for name in FORMATS]
# How far a value may be from the Keras model's, and which share of zeros may differ.
TOLERANCE = {"keras": 1e-6, "saved_model": 1e-6, "litert": 1e-5, "litert_float16": 5e-3}
TOLERANCE |= {"litert_int8": 0.15}


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((40, 16, 16, 1), np.float32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, images):
    """A run with a tiny network of images, in all formats."""
    keras.utils.set_random_seed(0)
    encoder = build_encoder("convnet", 32, "relu", (16, 16, 1), width=0.25)
    encoder.get_layer("embedding_norm").set_weights(
        [np.ones(32), np.linspace(-0.5, 0.1, 32), np.zeros(32), np.full(32, 0.1)]
    )
    config = TrainConfig(model=ModelConfig("convnet", embedding_dim=32))
    record = {"config": config.to_dict(), "curves": [], "seconds": 1.0, "weights_crc32": "0"}
    found = run.save(tmp_path_factory.mktemp("runs") / "run", encoder, record)
    found.export_saved_model()
    for name in LITERT:
        content = export.litert(encoder, name, images)
        (found.folder / FORMATS[name]).write_bytes(content)
    return found


def test_flags_name_all_formats():
    assert tuple(FORMATS) == ENCODERS


@pytest.mark.parametrize("name", ALL)
def test_embeddings_are_those_of_the_keras_model(trained, images, name):
    expected = trained.encoder()(images, training=False).numpy()
    assert 0.2 < np.mean(expected == 0) < 0.9
    encoder = open_encoder(trained.folder, name)
    assert (encoder.input_shape, encoder.dim, encoder.is_sparse) == ((16, 16, 1), 32, True)
    for count in (40, 1, 0, 7):  # a batch has any size
        rows = encoder.encode(images[:count])
        assert (rows.shape, rows.dtype) == ((count, 32), np.float32)
        np.testing.assert_allclose(rows, expected[:count], atol=TOLERANCE[name])
    rows = encoder.encode(images)
    assert np.mean((rows == 0) == (expected == 0)) > (0.95 if name == "litert_int8" else 0.999)
    # The unit norm is computed in float32, whatever the format of the weights.
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_threads_may_share_an_encoder(trained, images, name):
    encoder = open_encoder(trained.folder, name)
    expected = [encoder.encode(images[: 1 + count]) for count in range(8)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = pool.map(lambda count: encoder.encode(images[: 1 + count]), range(8))
            for rows, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(rows, wanted, atol=1e-6)


def test_another_shape_is_refused(trained, images):
    encoder = open_encoder(trained.folder)
    for wrong in (images[0], images[:, :8], np.float32(3)):
        with pytest.raises(ValueError, match=r"expected \(n, 16, 16, 1\)"):
            encoder.encode(wrong)


@litert
def test_weights_take_a_half_and_a_quarter_of_the_bytes(trained):
    # The weights of this network are few: the graph itself takes some kilobytes.
    whole, half, eighth = ((trained.folder / FORMATS[name]).stat().st_size for name in LITERT)
    assert eighth < half < 0.75 * whole


@litert
def test_only_operations_of_litert_itself_are_used(trained):
    from ai_edge_litert.interpreter import Interpreter

    for name in LITERT:
        interpreter = Interpreter(str(trained.folder / FORMATS[name]))
        operations = {row["op_name"] for row in interpreter._get_ops_details()}
        assert {"CONV_2D", "FULLY_CONNECTED", "RSQRT"} <= operations
        assert not [name for name in operations if name.startswith("Flex")]


@litert
def test_int8_is_calibrated_on_the_sample(trained, images, tmp_path):
    """Ranges taken from dark images cut off what bright ones give."""
    expected = trained.encoder()(images, training=False).numpy()
    path = tmp_path / "run"
    path.mkdir()
    (path / "train.json").write_bytes((trained.folder / "train.json").read_bytes())

    def error(sample):
        content = export.litert(trained.encoder(), "litert_int8", sample)
        (path / FORMATS["litert_int8"]).write_bytes(content)
        rows = open_encoder(path, "litert_int8").encode(images)
        return np.abs(rows - expected).mean()

    assert error(images / 50) > 3 * error(images)
    with pytest.raises(ValueError, match="expected a sample to calibrate on"):
        export.litert(trained.encoder(), "litert_int8")


def test_a_format_that_was_not_exported_is_named_with_its_command(trained, tmp_path):
    (tmp_path / "train.json").write_bytes((trained.folder / "train.json").read_bytes())
    for name in FORMATS:
        with pytest.raises(UsageError, match=rf"expected a folder that holds {FORMATS[name]}"):
            open_encoder(tmp_path, name)
    with pytest.raises(UsageError, match="export_encoder --export=litert_int8"):
        open_encoder(tmp_path, "litert_int8")
    with pytest.raises(ValueError, match="expected one of keras, saved_model, litert"):
        open_encoder(trained.folder, "onnx")


@litert
def test_damaged_files_are_refused_by_name(trained, tmp_path):
    (tmp_path / "train.json").write_bytes((trained.folder / "train.json").read_bytes())
    for name in LITERT:
        whole = (trained.folder / FORMATS[name]).read_bytes()
        for content in (b"", b"garbage" * 99, whole[: len(whole) // 2], whole[:100]):
            (tmp_path / FORMATS[name]).write_bytes(content)
            with pytest.raises(DataError, match=rf"{FORMATS[name]}: expected an encoder in LiteRT"):
                open_encoder(tmp_path, name)


def test_without_litert_the_extra_is_named(trained, monkeypatch):
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"litert needs ai_edge_litert.*sparse-embed\[litert\]"):
        open_encoder(trained.folder, "litert")


@litert
def test_litert_runs_without_tensorflow(trained):
    code = f"""
import pathlib, sys
import numpy as np
from sparse_embed.experiments.encoders.encoder import open_encoder
encoder = open_encoder(pathlib.Path({str(trained.folder)!r}), "litert")
assert encoder.encode(np.ones((2, 16, 16, 1), np.float32)).shape == (2, 32)
print({{"keras", "tensorflow"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "set()"


@litert
def test_what_is_exported_is_compared_and_embed_uses_it(vectors, tmp_path):
    keras.utils.set_random_seed(0)
    data = DataConfig("dense_embeddings", str(vectors), test=10)
    config = TrainConfig(data, ModelConfig("linear", embedding_dim=16))
    record = {"config": config.to_dict(), "curves": [], "seconds": 1.0, "weights_crc32": "0"}
    found = run.save(tmp_path / "run", build_encoder("linear", 16, "relu", (8,)), record)
    records = formats.export_and_verify(found, LITERT, most=30)
    assert json.loads((found.folder / "encoders.json").read_text())["encoders"] == records
    rows = {row["format"]: row for row in records}
    assert list(rows) == ["keras", *LITERT]
    assert rows["litert"]["largest_difference"] < 1e-5
    assert rows["litert"]["recall_at_1"] == rows["keras"]["recall_at_1"] > 0
    assert rows["keras"]["equal_zeros"] == rows["litert"]["equal_zeros"] == 1
    assert rows["litert_float16"]["largest_difference"] > rows["litert"]["largest_difference"]
    for name, row in rows.items():
        assert row["examples"] == 30
        assert row["bytes"] == (found.folder / FORMATS[name]).stat().st_size
        assert row["milliseconds_1"] > 0
        assert row["milliseconds_2"] > 0
    lines = formats.table(records).splitlines()
    assert [line.split()[0] for line in lines] == ["encoder", *rows]

    output = tmp_path / "rows.npz"
    command = [sys.executable, "-m", "sparse_embed.experiments.embed", "--encoder=litert"]
    command += [f"--model_dir={found.folder}", f"--output={output}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    expected, _ = embed_part(found, found.encoder(), None, "test")
    result = embedding_files.load(output)
    np.testing.assert_allclose(
        result.vectors.toarray(), expected.vectors.toarray(), rtol=0, atol=1e-5
    )
    np.testing.assert_array_equal(result.labels, expected.labels)
