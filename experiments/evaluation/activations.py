"""Measures how near trained activations are to rectified Gaussians (section 4, figure 2a)."""

import pathlib

import numpy as np

from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.data import load_data
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.embedding import embed, examples_at_once

_SHOWN = 3  # dimensions whose activations are kept


def evaluate(activations: np.ndarray) -> tuple[Record, dict[str, np.ndarray]]:
    """Fits each column; returns the metrics of a record and its raw results.

    The distance is given as such, which the paper minimizes, and relative to the activation
    probability: if a dimension is zero in 99 of 100 images, every distribution that agrees on this
    is within 0.01.

    Args:
        activations: (images, dimensions), none negative. Dimensions with fewer than 20 non-zeros
            are not fitted.

    Raises:
        ValueError: there is no dimension to fit.
    """
    from sparse_embed.losses import population

    alive = np.flatnonzero((activations > 0).sum(axis=0) >= 20)
    if not len(alive):
        raise ValueError("activations: expected a dimension with 20 non-zeros, found none")
    fits = [population.fit_rectified_gaussian(activations[:, column]) for column in alive]
    mu, sigma, distance = (np.array(column) for column in zip(*fits, strict=True))
    relative = distance / (activations[:, alive] > 0).mean(axis=0)
    order = np.argsort(relative, kind="stable")
    shown = order[np.linspace(0, len(order) - 1, 2 * _SHOWN + 1).astype(int)[1::2]]
    metrics = {
        "images": len(activations),
        "dimensions": len(alive),
        "skipped_dimensions": activations.shape[1] - len(alive),
        "ks_distance": float(np.median(distance)),
        "ks_distance_p90": float(np.percentile(distance, 90)),
        "relative_ks_distance": float(np.median(relative)),
        "activation_probability": float((activations > 0).mean()),
    }
    arrays = {
        "distances": distance,
        "relative_distances": relative,
        "shown": np.stack([mu[shown], sigma[shown], distance[shown]], axis=1),
        "activations": activations[:, alive[shown]].astype(np.float32),
    }
    return metrics, arrays


def read_activations(run: Run, images: int, dimensions: int) -> np.ndarray:
    """Returns the positive part of some dimensions' activations on images of unseen classes."""
    import keras

    encoder = run.encoder()
    activation = keras.Model(encoder.input, encoder.get_layer("embedding_activation").output)
    parts = load_data(run.config.data)
    part = parts["test" if "test" in parts else "train"]
    step = max(1, len(part) // images)  # classes lie side by side: take images from all of them
    size = examples_at_once(part.shape)
    batches = part.evaluation_batches(size).unbatch().shard(step, 0).take(images).batch(size)
    values, _ = embed(activation, batches, sparse=False)
    columns = np.unique(np.linspace(0, values.shape[1] - 1, dimensions).astype(int))
    positive: np.ndarray = np.maximum(values[:, columns], 0)
    return positive


def evaluate_run(run: Run, folder: pathlib.Path, images: int, dimensions: int) -> None:
    """Fits the activations of a run's encoder and updates their record."""
    key = {
        "experiment": "activations",
        "data": run.config.data.dataset,
        "method": run.method,
        "setting": {"run": run.name, "activation": run.config.model.activation},
        "flags": {"images": images, "dimensions": dimensions},
    }

    def make() -> tuple[Record, dict[str, np.ndarray]]:
        return evaluate(read_activations(run, images, dimensions))

    records.update(folder, key, [run.encoder_file], make)
