"""Counts against independent ones: by hand, by TensorFlow's profiler, by the arrays themselves."""

import dataclasses
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
import training_cost
from step_graph import StepBytes, step_bytes
from training_cost import Cost, Gpu, Sizes, multiply_adds

from sparse_embed import models
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.markdown import put_between_marks
from sparse_embed.flags import app
from sparse_embed.flags.options.train import preset_config

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "training_cost.md"


def test_multiply_adds_by_hand():
    inputs = keras.Input((8, 6, 3))
    x = keras.layers.Conv2D(5, 3, strides=2, padding="same", use_bias=False)(inputs)  # 4 x 3
    x = keras.layers.DepthwiseConv2D((3, 2), padding="valid")(x)  # 2 x 2
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Dense(7)(keras.layers.Flatten()(x))
    model = keras.Model(inputs, models.ArcFaceHead(11)(x))
    counts = [multiply_adds(layer) for layer in model.layers]
    assert [count for count in counts if count] == [
        4 * 3 * (3 * 3 * 3 * 5),
        2 * 2 * (3 * 2 * 5),
        2 * 2 * 5 * 7,
        7 * 11,
    ]


def test_unknown_kernel_is_refused():
    layer = keras.layers.Conv1D(4, 3, name="odd")
    layer.build((None, 9, 2))
    with pytest.raises(ValueError, match="layer odd: expected Conv2D"):
        multiply_adds(layer)


@pytest.mark.parametrize("name", ["mobilefacenet", "resnet101"])
def test_multiply_adds_equal_those_of_tensorflows_profiler(name):
    with tf.Graph().as_default() as graph:
        encoder = models.build_encoder(name, 64, "relu", (112, 112, 3))
        start = len(graph.get_operations())
        encoder(tf.compat.v1.placeholder(tf.float32, (1, 112, 112, 3)))
        own = {operation.name for operation in graph.get_operations()[start:]}
        options = tf.compat.v1.profiler.ProfileOptionBuilder
        found = tf.compat.v1.profiler.profile(
            graph,
            options=options(options.float_operation()).with_empty_output().build(),
            cmd="scope",
        )
        types = {operation.name: operation.type for operation in graph.get_operations()}

    def walk(node):
        yield node
        for child in node.children:
            yield from walk(child)

    kinds = ("Conv2D", "DepthwiseConv2dNative", "MatMul")
    operations = sum(
        node.float_ops for node in walk(found) if node.name in own and types[node.name] in kinds
    )
    assert operations == 2 * sum(map(multiply_adds, encoder.layers)) > 1e8


def small_step(batch):
    """A step whose tensors can be counted by hand."""
    with tf.Graph().as_default():
        inputs = keras.Input((4,))
        x = keras.layers.Dense(8, activation="relu", use_bias=False)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(3, use_bias=False)(x))
        model.compile(
            keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        )
        return step_bytes(model, batch)


def test_kept_bytes_by_hand():
    """The images for the first gradient, the rectified values for the second, and a softmax."""
    per_example = 4 * (4 + 8 + 3)
    one, two = small_step(100), small_step(200)
    assert two.kept - one.kept == 100 * per_example
    assert one.kept == pytest.approx(100 * per_example, abs=64)  # and a few scalars
    # Forward and backward, each product reads and writes its tensors; there is more around them.
    products = 4 * (2 * (4 + 8) + 3 * (8 + 3))
    assert two.moved - one.moved > 100 * products


def test_sizes_equal_those_of_the_arrays():
    config = preset_config("cifar100_flops")
    encoder, model = training_cost._build(config, (32, 32, 3), 100, "float32")
    sizes = training_cost.count_sizes(encoder, model)
    arrays = encoder.get_weights()
    assert sizes.encoder == encoder.count_params() == sum(array.size for array in arrays)
    assert sizes.classes == 0
    trainable = sum(np.asarray(variable).nbytes for variable in model.trainable_variables)
    assert sizes.gradients == trainable
    assert sizes.weights == pytest.approx(sum(array.nbytes for array in arrays), abs=64)
    assert sizes.slots == pytest.approx(2 * trainable, abs=64)  # Adam has two
    assert sizes.summed > trainable


def test_step_seconds_by_hand():
    """4 replicas: 6 * 1e9 * 100 / 60e12 = 10 ms, 9e9 / 900e9 = 10 ms, 1.5 * 2e9 / 150e9 = 20 ms."""
    config = preset_config("mobilefacenet_flops_300")
    config = dataclasses.replace(
        config, optimization=dataclasses.replace(config.optimization, batch_size=100)
    )
    sizes = Sizes(0, 0, 10**9, 0, 0, 0, 0, 1, 2 * 10**9)
    cost = Cost(["a"], config, sizes, {"float32": StepBytes(0, 9 * 10**9)})
    gpu = Gpu(60.0, 0.0, 900.0, 150.0)
    assert training_cost.step_seconds(cost, "float32", gpu, 1.0) == pytest.approx(0.040)
    assert training_cost.step_seconds(cost, "float32", gpu, 0.5) == pytest.approx(0.080)
    (row,) = training_cost._time_rows(cost, [gpu], 0.5)
    assert row[-3:] == ["80", "12.5", f"{230_000 * 0.08 / 86_400:.2f}"]


def test_embeddings_on_disk():
    sparse, dense = (preset_config(name) for name in ("resnet101_l1_3.0", "resnet101_dense512"))
    assert training_cost.distractor_bytes(dense, 32) == 1_000_000 * 512 * 4
    assert training_cost.distractor_bytes(sparse, 32) == 1_000_000 * (32 * 8 + 4)


def test_presets_of_equal_cost_are_one_row():
    names = training_cost.paper_presets(app.preset_names())
    assert len(names) == 2 * 11 + 6
    groups = {training_cost.group_name(preset_config(name)) for name in names}
    assert len(groups) == 2 * 4 + 3


def test_a_preset_that_is_not_there():
    with pytest.raises(UsageError, match="--preset=faces: expected one of"):
        preset_config("faces")


def rows_of_page():
    return [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]


def shown_rows(found):
    """The lines that the script would write about these."""
    tables = training_cost.tables(
        found, {name: training_cost.GPUS[name] for name in ("V100", "H100")}, 0.6, 32
    )
    return [line for line in training_cost.markdown(tables).splitlines() if line[:2] == "| "]


def all_of(*names):
    """All presets of the groups of these."""
    groups = {training_cost.group_name(preset_config(name)) for name in names}
    configs = {
        name: preset_config(name) for name in training_cost.paper_presets(app.preset_names())
    }
    return {
        name: config
        for name, config in configs.items()
        if training_cost.group_name(config) in groups
    }


def test_page_has_the_sizes_that_are_counted_now():
    found = training_cost.costs(all_of("mobilefacenet_dense128", "resnet101_flops_50"), trace=False)
    shown = shown_rows(found)
    assert sum("-d |" in line for line in shown) == 2
    assert set(shown) <= set(rows_of_page())


def test_page_has_the_memory_and_the_times_that_are_counted_now():
    """One run stands for all: each takes seconds."""
    (counted_with,) = re.findall(
        r"Counted with TensorFlow (\S+) and Keras (\S+)\.", PAGE.read_text()
    )
    if counted_with != (tf.__version__, keras.__version__):
        pytest.skip(
            f"other versions keep other tensors: the page is of {' and '.join(counted_with)}"
        )
    shown = shown_rows(training_cost.costs(all_of("mobilefacenet_flops_300")))
    assert sum("-d |" in line for line in shown) == 5  # of sizes, of memory and of times
    assert set(shown) <= set(rows_of_page())


def test_page_has_all_runs_and_what_is_between_its_marks_can_be_replaced():
    page = PAGE.read_text()
    for name in training_cost.paper_presets(app.preset_names()):
        assert f"| {training_cost.group_name(preset_config(name))} |" in page
    changed = put_between_marks(page, "new\n")
    assert "new\n" in changed
    assert "### Sizes" in page
    assert "### Sizes" not in changed
    assert changed.splitlines()[0] == page.splitlines()[0]
    assert put_between_marks("no marks", "new\n") == "new\n"
