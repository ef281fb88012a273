"""Training on data that is broken: one line, or without the broken images."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.datasets import image_folder, tfrecords
from sparse_embed.datasets.catalogue import ImageFolderOptions
from sparse_embed.experiments.core.data import load_data, reading_part
from sparse_embed.experiments.encoders.embedding import embed_part
from sparse_embed.experiments.training.loop import check_same_experiment, train
from sparse_embed.flags.train_config import (
    DataConfig,
    LoggingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizationConfig,
    TrainConfig,
)


@pytest.fixture
def photos(tmp_path):
    """Six classes of four images."""
    rng = np.random.default_rng(0)
    for number in range(24):
        file = tmp_path / "photos" / f"class {number % 6}" / f"{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.io.encode_png(rng.integers(0, 256, (16, 16, 3), np.uint8)).numpy())
    return tmp_path / "photos"


@pytest.fixture
def cut(photos):
    """An image whose header is whole and whose pixels are not."""
    path = photos / "class 3/09.png"
    path.write_bytes(path.read_bytes()[:-200])
    return path


def config(dataset, path, options=None, validation=0):
    return TrainConfig(
        DataConfig(dataset, str(path), validation=validation, options=options),
        ModelConfig("convnet", 8, "none", 0.1),
        ObjectiveConfig(regularizer="none"),
        OptimizationConfig(steps=6, batch_size=8),
    )


def folder_config(path, **more):
    return config("image_folder", path, ImageFolderOptions(16, **more))


def run(folder, settings):
    folder.mkdir(exist_ok=True)
    return train(settings, folder, LoggingConfig(summary_every=2, checkpoint_every=2))


def script(name, *arguments):
    command = [sys.executable, "-m", f"sparse_embed.experiments.{name}", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_broken_image_costs_one_line(photos, cut, tmp_path):
    flags = ["--dataset=image_folder", f"--data_dir={photos}", "--image_size=16", "--steps=6"]
    flags += ["--batch_size=8", "--embedding_dim=8", "--width=0.1", f"--model_dir={tmp_path}/run"]
    flags += ["--activation=none", "--regularizer=none"]
    result = script("train", *flags)
    assert result.returncode == 2
    *before, line = result.stderr.splitlines()
    assert line.startswith(f"train: {cut}: cannot be decoded: ")
    assert all(text.startswith("run: ") for text in "\n".join(before).split("\r") if text), before
    # What its header shows is found before the first step.
    cut.write_bytes(b"no image")
    (photos / "class 4/empty.jpg").write_bytes(b"")
    result = script("train", *flags)
    assert result.returncode == 2
    assert f"{cut}: cannot be decoded: expected JPEG, PNG, GIF or BMP" in result.stderr
    assert "(2 of 25 images are broken; on_error=skip leaves them out)" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_run_that_a_broken_image_ended_goes_on_without_it(photos, cut, tmp_path, caplog):
    with pytest.raises(DataError, match=r"09.png: cannot be decoded"):
        run(tmp_path / "run", folder_config(photos))
    with caplog.at_level("WARNING", logger="absl"):
        found = run(tmp_path / "run", folder_config(photos, on_error="skip"))
    assert found.record["curves"][-1]["step"] == 6
    assert any(f"skipped image 1: {cut}: " in record.getMessage() for record in caplog.records)
    with pytest.raises(UsageError, match="--mirror was True, now False"):
        run(tmp_path / "run", folder_config(photos, mirror=False))


def test_embedding_names_a_broken_image_too(photos, tmp_path):
    found = run(tmp_path / "run", folder_config(photos))
    path = photos / "class 0/00.png"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"^/[^\n]+00.png: cannot be decoded: [^\n]*$"):
        embed_part(found, found.encoder(), None, "train")


def test_a_broken_image_among_validation_classes_is_named(photos, tmp_path):
    settings = config("image_folder", photos, ImageFolderOptions(16), validation=2)
    part = load_data(settings.data)["validation"]
    path = part.source.paths[part.rows[0]]
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=f"{path.name}: cannot be decoded"):
        run(tmp_path / "run", settings)


def test_an_image_in_a_shard_that_does_not_decode_is_named(photos, tmp_path):
    """Whole records with the right checksums, and a header that promises a picture."""
    shards = tfrecords.write_shards(image_folder.load(photos, (8, 8, 3)), tmp_path / "shards", 1)
    (path,) = (tmp_path / "shards").glob("*.tfrecord")
    records = [bytes(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            place = record.rindex(b"IDAT") + 8
            writer.write(record[:place] + bytes(4) + record[place + 4 :])
    with (
        pytest.raises(DataError, match=r"00000-of-00001.tfrecord: holds an image that cannot be"),
        reading_part(shards),
    ):
        list(shards.evaluation_batches(2))


def test_a_damaged_shard_is_named(photos, tmp_path):
    examples = image_folder.load(photos, (16, 16, 3))
    tfrecords.write_shards(examples, tmp_path / "shards", num_shards=2)
    path = tmp_path / "shards/00001-of-00002.tfrecord"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"00001-of-00002.tfrecord: damaged: corrupted record at"):
        run(tmp_path / "run", config("tfrecords", tmp_path / "shards"))


def test_shards_train_on_some_classes_and_are_evaluated_on_others(photos, tmp_path):
    examples = image_folder.load(photos, (16, 16, 3))
    tfrecords.write_shards(examples, tmp_path / "shards", num_shards=2)
    found = run(tmp_path / "run", config("tfrecords", tmp_path / "shards", validation=2))
    assert found.record["num_classes"] == 4
    assert "recall_at_1" in found.record["curves"][-1]
    result, _ = embed_part(found, found.encoder(), None, "validation")
    assert np.bincount(result.labels).tolist() == [4, 4]


def test_a_run_from_before_an_option_existed_can_be_resumed(photos, tmp_path):
    """It acts as if the option had its default."""
    settings = folder_config(photos)
    start = {name: value for name, value in settings.identity.items() if name != "mirror"}
    (tmp_path / "config.json").write_text(json.dumps(start))
    check_same_experiment(tmp_path, settings)
    with pytest.raises(UsageError, match="--mirror was True, now False"):
        check_same_experiment(tmp_path, folder_config(photos, mirror=False))


def test_other_errors_stay_as_they_are():
    with pytest.raises(tf.errors.InvalidArgumentError), reading_part():
        tf.ensure_shape(tf.zeros(3), (4,))
    with pytest.raises(tf.errors.DataLossError), reading_part():
        raise tf.errors.DataLossError(None, None, "corrupted record at 7")
    with pytest.raises(ZeroDivisionError), reading_part():
        1 / 0  # noqa: B018
