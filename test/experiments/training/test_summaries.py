"""The rows of TensorBoard's HParams dashboard, read as its own backend does."""

import json
import pathlib
import re

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from sparse_embed.experiments.core.run import snapshot_folder
from sparse_embed.experiments.training.loop import train
from sparse_embed.experiments.training.summaries import TAGS
from sparse_embed.flags.train_config import (
    DataConfig,
    LoggingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizationConfig,
    TrainConfig,
)


def run(vectors, folder, activation="relu", **objective):
    config = TrainConfig(
        DataConfig("dense_embeddings", str(vectors), validation=5),
        ModelConfig("linear", 16, activation),
        ObjectiveConfig(**objective),
        OptimizationConfig(steps=20, batch_size=32),
    )
    train(config, folder, LoggingConfig(10, 10, 10))
    return json.loads((folder / "train.json").read_text())["curves"]


def trial(folder):
    """A run's hyper-parameters, and the last value of each metric."""
    events = EventAccumulator(str(folder / "tensorboard")).Reload()

    def content(tag):
        data = events.SummaryMetadata(tag).plugin_data.content
        return plugin_data_pb2.HParamsPluginData.FromString(data)

    values = content("_hparams_/session_start_info").session_start_info.hparams
    columns = content("_hparams_/experiment").experiment
    assert values.keys() == {info.name for info in columns.hparam_infos}
    for info in columns.hparam_infos:  # words are among those to filter by
        if values[info.name].WhichOneof("kind") == "string_value":
            words = [value.string_value for value in info.domain_discrete.values]
            assert values[info.name].string_value in words
    found = {}
    for info in columns.metric_infos:
        if info.name.tag in events.Tags()["tensors"]:
            last = events.Tensors(info.name.tag)[-1]
            found[info.display_name] = float(tf.make_ndarray(last.tensor_proto))
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}, found


def results(row):
    return pytest.approx(
        {
            "recall@1": row["recall_at_1"],
            "F": row["evaluation_flops_per_row"],
            "sub-optimality ratio": row["sparsity_suboptimality_ratio"],
        }
    )


def test_run_has_a_row_of_flags_and_results(vectors, tmp_path):
    curves = run(vectors, tmp_path / "run", regularizer_weight=3.0)
    values, metrics = trial(tmp_path / "run")
    expected = {"lambda": 3, "d": 16, "regularizer": "flops", "activation": "relu", "steps": 20}
    assert expected.items() <= values.items()
    assert metrics == results(curves[-1])


def test_every_tag_is_documented(vectors, tmp_path):
    run(vectors, tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    tags = {tag for tag in events.Tags()["tensors"] if not tag.startswith("_hparams_")}
    page = pathlib.Path(__file__).parents[3] / "docs" / "training.md"
    documented = set(re.findall(r"`([a-z_0-9/]+)`", page.read_text()))
    assert tags | set(TAGS.values()) <= documented


def test_dense_run_has_no_lambda(vectors, tmp_path):
    run(vectors, tmp_path / "run", "none", regularizer="none")
    values, _ = trial(tmp_path / "run")
    assert (values["lambda"], values["regularizer"], values["activation"]) == (0, "none", "none")


def test_each_weight_of_a_path_has_a_row(vectors, tmp_path):
    curves = run(vectors, tmp_path / "run", reg_path="0.5,4", warmup_steps=10)
    for weight, end in ((0.5, 20), (4.0, 25)):
        values, metrics = trial(snapshot_folder(tmp_path / "run", weight))
        assert values["lambda"] == weight
        (row,) = [row for row in curves if row["step"] == end]
        assert metrics == results(row)
    with pytest.raises(KeyError):
        trial(tmp_path / "run")  # it would be the last weight again
