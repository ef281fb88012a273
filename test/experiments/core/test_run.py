"""The folder of a run: what is damaged in it is refused by name."""

import json
import zipfile

import keras
import numpy as np
import pytest

from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.experiments.core import run
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.encoder import open_encoder
from sparse_embed.experiments.training.recorder import _read_curves
from sparse_embed.flags.train_config import TrainConfig
from sparse_embed.models import build_encoder

RECORD = {"config": TrainConfig().to_dict(), "curves": [], "seconds": 1.0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    keras.utils.set_random_seed(0)
    encoder = build_encoder("linear", 16, "relu", (8,))
    return run.save(tmp_path_factory.mktemp("runs") / "run", encoder, RECORD)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"config": {',
        b"\xff\xfe{}",
        b"[]",
        b"{}",
        b'{"config": 3}',
        b'{"config": {"model": 3}}',
        b'{"config": {"data": []}}',
    ],
)
def test_a_damaged_record_is_refused_by_name(tmp_path, content):
    (tmp_path / "train.json").write_bytes(content)
    with pytest.raises(DataError, match=r"train\.json: .*(expected the record of a run|missing)"):
        Run.open(tmp_path)


def test_what_a_record_lacks_is_named(trained):
    with pytest.raises(DataError, match=r"train\.json: 'weights_crc32' is missing"):
        trained.record["weights_crc32"]
    with pytest.raises(UsageError, match=r"expected a folder that holds train\.json"):
        Run.open(trained.folder / "nowhere")
    assert json.loads((trained.folder / "train.json").read_text()) == trained.record


def test_a_damaged_encoder_is_refused_by_name(trained, tmp_path):
    whole = trained.encoder_file.read_bytes()
    path = tmp_path / "encoder.keras"
    path.write_bytes(whole)
    examples = np.ones((1, 8), np.float32)
    np.testing.assert_array_equal(run.load_encoder(path)(examples), trained.encoder()(examples))
    parts = [whole[: len(whole) * part // 8] for part in range(8)]
    flips = [
        whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
        for place in range(len(whole) // 20, len(whole), len(whole) // 10)
    ]
    for content in (b"garbage", *parts, *flips):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"encoder\.keras: expected an encoder"):
            run.load_encoder(path)


def test_another_config_in_an_encoder_is_refused_by_name(trained, tmp_path):
    path = tmp_path / "encoder.keras"
    for config in (b"", b"[]", b"{}", b'{"class_name": "Functional", "config": {}}'):
        with (
            zipfile.ZipFile(trained.encoder_file) as old,
            zipfile.ZipFile(path, "w") as new,
        ):
            for name in old.namelist():
                new.writestr(name, config if name == "config.json" else old.read(name))
        with pytest.raises(DataError, match=r"encoder\.keras: expected an encoder"):
            run.load_encoder(path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "encoder.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", bytes(100 << 20))
    with pytest.raises(DataError, match=r"encoder\.keras: a zip archive of .* unpacks to 104,857"):
        run.load_encoder(path)


def test_a_damaged_saved_model_is_refused_by_name(trained):
    folder = trained.export_saved_model()
    open_encoder(trained.folder, "saved_model")
    for name in ("saved_model.pb", "variables/variables.data-00000-of-00001"):
        whole = (folder / name).read_bytes()
        for content in (whole[: len(whole) // 2], b"garbage", b""):
            (folder / name).write_bytes(content)
            with pytest.raises(DataError, match=r"saved_model: expected a SavedModel"):
                open_encoder(trained.folder, "saved_model")
        (folder / name).write_bytes(whole)


@pytest.mark.parametrize(
    "content", [b"", b"[{", b"{}", b"[3]", b'[{"step": "1"}]', b'[{"step": 1}]', b"\xff"]
)
def test_damaged_curves_are_refused_by_name(tmp_path, content):
    path = tmp_path / "curves.json"
    path.write_text('[{"step": 1, "seconds": 2.0}, {"step": 9, "seconds": 2.0}]')
    assert _read_curves(path, 5) == [{"step": 1, "seconds": 2.0}]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"curves\.json: expected "):
        _read_curves(path, 5)
