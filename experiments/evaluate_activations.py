r"""How near the activations of a trained encoder are to rectified Gaussians (section 4, figure 2a).

    python -m sparse_embed.experiments.evaluate_activations --model_dir=runs/flops \
        --records=runs/records

Takes the activations before they are scaled to unit norm, on classes that were not trained on; fits
a rectified Gaussian to each of some dimensions by the least Kolmogorov-Smirnov distance; leaves a
record. Of the soft threshold it takes the positive part: max(SThresh(Y), 0) = max(Y - 1/2, 0) is
the rectified Gaussian of a shifted Y.
"""

import pathlib
from typing import Any

import numpy as np
from absl import flags

from sparse_embed.experiments import records
from sparse_embed.experiments.data import load_data
from sparse_embed.experiments.embed import embed, is_sparse
from sparse_embed.experiments.runs import ENCODER, RECORD, load_encoder, load_record
from sparse_embed.flags import app
from sparse_embed.flags.data import DataConfig
from sparse_embed.flags.output import MODEL_DIR, RECORDS

_DIMENSIONS = flags.DEFINE_integer(
    "dimensions", 64, "How many dimensions are fitted, evenly spaced.", lower_bound=1
)
_IMAGES = flags.DEFINE_integer("images", 4096, "How many images are looked at.", lower_bound=100)
_SHOWN = 3  # dimensions whose activations are kept


def evaluate(activations: np.ndarray) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Fits each column; returns the figures of a record and its raw results.

    The distance is absolute, as the paper minimizes it; and relative to the activation
    probability, since of a dimension that is zero in 99 of 100 images no distribution that agrees
    on this can be further away than 0.01.

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
    figures = {
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
    return figures, arrays


def read_activations(model_dir: pathlib.Path, images: int, dimensions: int) -> np.ndarray:
    """Returns the positive part of some dimensions' activations on images of unseen classes."""
    import keras

    encoder = load_encoder(model_dir)
    activation = keras.Model(encoder.input, encoder.get_layer("embedding_activation").output)
    data = load_data(DataConfig(**load_record(model_dir)["config"]["data"]))
    part = data.parts["test" if "test" in data.parts else "train"]
    step = max(1, len(part) // images)  # classes lie side by side: take images from all of them
    batches = data.evaluation_batches(part, 512).unbatch().shard(step, 0).take(images).batch(512)
    values, _ = embed(lambda examples: activation(examples, training=False), batches, sparse=False)
    columns = np.unique(np.linspace(0, values.shape[1] - 1, dimensions).astype(int))
    return np.maximum(values[:, columns], 0)


def main() -> None:
    """Reads the flags and evaluates."""
    model_dir = app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD)
    folder = app.writable_folder("records", RECORDS.value)
    config = load_record(model_dir)["config"]
    if not is_sparse(config):
        raise app.UsageError(f"--model_dir={model_dir}: expected an encoder of sparse embeddings")
    key = {
        "experiment": "activations",
        "data": config["data"]["dataset"],
        "method": config["objective"]["regularizer"],
        "setting": {"run": model_dir.name, "activation": config["model"]["activation"]},
        "flags": {"images": _IMAGES.value, "dimensions": _DIMENSIONS.value},
    }
    name = records.record_name("activations", key["data"], key["method"], model_dir.name)

    def make() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return evaluate(read_activations(model_dir, _IMAGES.value, _DIMENSIONS.value))

    records.update(folder, name, key, [model_dir / ENCODER], make)


if __name__ == "__main__":
    app.run(main)
