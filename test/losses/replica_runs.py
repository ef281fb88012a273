"""Trains small models on one, two and four replicas; `test_replicas.py` compares the results.

Run as a script, since TensorFlow can be given logical devices only before anything has used it.
Writes one pickled dictionary: (objective, replicas) -> {"loss", "gradients"}, and for "schedule"
{"logs", "step"}.
"""

import contextlib
import pickle
import sys

import keras
import numpy as np
import tensorflow as tf

from sparse_embed.losses import (
    ArcFaceLoss,
    DFFlopsRegularization,
    FlopsRegularization,
    L1Regularization,
    QuadraticWarmup,
    SDHLoss,
    SparsityMonitor,
    SupervisedContrastLoss,
    TargetFlops,
    TripletSemiHardLoss,
)
from sparse_embed.models import ArcFaceHead

BATCH, FEATURES, DIMENSIONS, CLASSES = 24, 6, 10, 5

FLOPS = [FlopsRegularization, 3.0]
L1 = [L1Regularization, 3.0]
TARGET = [L1Regularization, TargetFlops(2.0, weight=3.0, steps=1)]

# Name of the objective: layers behind the embedding, metric loss, number of examples: in one step;
# beyond a batch of 24, in a second one: 23 examples come to two replicas as 12 and 11, to four as
# 6, 6, 6 and 5; one example leaves replicas without any. (Keras refuses an uneven first batch.)
OBJECTIVES = {
    "flops": ([FLOPS], None, 24),
    "flops, scope=replica": ([[*FLOPS, "replica"]], None, 24),
    "l1": ([L1], None, 24),
    "arcface": ([], ArcFaceLoss, 24),
    "triplet": ([], TripletSemiHardLoss, 24),
    "sdh": ([], SDHLoss, 24),
    "contrast": ([], SupervisedContrastLoss, 24),
    "flops and l1, uneven": ([FLOPS, L1], None, 24 + 23),
    "target, uneven": ([TARGET], None, 24 + 23),
    "df_flops and l1, uneven": ([[DFFlopsRegularization, TargetFlops(2.0)], L1], None, 24 + 23),
    "flops and l1, empty replicas": ([FLOPS, L1], None, 24 + 1),
    "flops and triplet": ([FLOPS], TripletSemiHardLoss, 24),
    "l1 and arcface": ([L1], ArcFaceLoss, 24),
}
# Tracing a graph takes a second, running without one much less: these stand for the others.
IN_GRAPH = ["flops and triplet", "l1 and arcface"]


def make_strategy(replicas):
    if replicas == 1:
        return None
    return tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(replicas)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def make_model(strategy, layers, loss, **compile_args):
    with strategy.scope() if strategy else contextlib.nullcontext():
        keras.utils.set_random_seed(3)
        inputs = keras.Input((FEATURES,))
        x = keras.layers.Dense(DIMENSIONS, bias_initializer="random_normal")(inputs)
        x = keras.layers.ReLU()(x)
        x = keras.layers.UnitNormalization()(x)
        for layer, *arguments in layers:
            x = layer(*arguments)(x)
        if loss is ArcFaceLoss:
            x = ArcFaceHead(CLASSES)(x)
        model = keras.Model(inputs, x)
        # With this optimizer, a step subtracts exactly the gradient from the weights.
        model.compile(keras.optimizers.SGD(1.0), loss() if loss else None, **compile_args)
    return model


def run(strategy, layers, loss, x, y, graph):
    """One epoch of Keras' own `fit`: the loss that it reports, and what the weights have lost."""
    model = make_model(strategy, layers, loss, run_eagerly=not graph)
    before = [w.numpy() for w in model.trainable_variables]
    y = y if loss else None
    history = model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0).history
    after = [w.numpy() for w in model.trainable_variables]
    gradients = [a - b for a, b in zip(before, after, strict=True)]
    return {"loss": history["loss"][0], "gradients": gradients}


def run_schedule(strategy, x, y):
    """Two epochs of three steps of a schedule, with validation: the logs, and the step counter."""
    regularization = [FlopsRegularization, QuadraticWarmup(4.0, 4)]
    model = make_model(strategy, [[SparsityMonitor], regularization], ArcFaceLoss)
    model.optimizer.learning_rate = 0.01
    history = model.fit(
        x[:BATCH],
        y[:BATCH],
        batch_size=8,
        epochs=2,
        shuffle=False,
        verbose=0,
        validation_data=(x[BATCH : BATCH + 9], y[BATCH : BATCH + 9]),
        validation_batch_size=8,
    ).history
    return {"logs": history, "step": int(model.get_layer("flops").step.numpy())}


def main(path):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2 * BATCH, FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, 2 * BATCH)
    results = {}
    for replicas in (1, 2, 4):
        strategy = make_strategy(replicas)
        for name, (layers, loss, n) in OBJECTIVES.items():
            graph = name in IN_GRAPH
            results[name, replicas] = run(strategy, layers, loss, x[:n], y[:n], graph)
        if replicas <= 2:
            results["schedule", replicas] = run_schedule(strategy, x, y)
    with open(path, "wb") as file:
        pickle.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1])
