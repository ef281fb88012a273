"""Embeds a part of a data set with a trained encoder.

    python -m sparse_embed.experiments.embed --model_dir=runs/sparse --output=runs/sparse/test.npz

An encoder with a relu or soft_threshold activation gives sparse embeddings (CSR, `.npz`), one
without activation dense ones (`.npy`); both come with labels and provenance.
"""

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import tqdm
from absl import flags

from sparse_embed.experiments import embeddings
from sparse_embed.experiments.embeddings import Embeddings
from sparse_embed.experiments.provenance import provenance
from sparse_embed.experiments.runs import RECORD, load_encoder, load_record
from sparse_embed.flags import app
from sparse_embed.flags.output import MODEL_DIR, OUTPUT

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

SPLITS = ["train", "validation", "test", "distractors"]
_VIEW_SEED = 1  # of the warps; one for all encoders, whose rows must show the same images

_SPLIT = flags.DEFINE_enum("split", "test", SPLITS, "Part of the data set; they share no class.")
_VIEWS = flags.DEFINE_integer(
    "views", 3, "How many warped views of each image are embedded.", lower_bound=1
)
_COUNT = flags.DEFINE_integer(
    "count", 100_000, "How many distractors to make; only with --split=distractors.", lower_bound=1
)


def embed(
    encoder: "keras.Model", batches: "tf.data.Dataset", sparse: bool, description: str = "embedding"
) -> tuple[scipy.sparse.csr_array | np.ndarray, np.ndarray]:
    """Returns the embeddings of all images of `batches` and their labels.

    Args:
        encoder: images -> (batch, d).
        batches: finite, of (images, labels).
        sparse: whether to keep only the non-zeros, as a CSR matrix; memory then grows with them.
        description: what stands before the progress bar.
    """
    parts, labels = [], []
    for images, batch_labels in tqdm.tqdm(batches, desc=description, unit="batch"):
        vectors = encoder(images, training=False).numpy()
        parts.append(scipy.sparse.csr_array(vectors) if sparse else vectors)
        labels.append(batch_labels.numpy())
    rows = scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    return rows, np.concatenate(labels)


def embed_glyphs(
    model_dir: pathlib.Path, split: str = "test", views: int = 3, count: int = 100_000
) -> Embeddings:
    """Embeds one part of the glyphs with the encoder in `model_dir`."""
    from sparse_embed.datasets import glyphs

    config = load_record(model_dir)["config"]
    part = getattr(glyphs.split(glyphs.load(config["data"]["data_dir"])), split)
    if split == "distractors":
        batches = glyphs.distractor_batches(part, count, batch_size=512, seed=_VIEW_SEED)
    else:
        batches = glyphs.evaluation_batches(part, views, batch_size=512, seed=_VIEW_SEED)
    vectors, labels = embed(
        load_encoder(model_dir), batches, is_sparse(config), f"embedding {model_dir.name}/{split}"
    )
    note = {"split": split, "views": views, "train": config, **provenance()}
    return Embeddings(vectors, labels, note)


def is_sparse(config: dict[str, Any]) -> bool:
    """Whether a run with this config gives embeddings with exact zeros."""
    return config["model"]["activation"] != "none"


def main() -> None:
    """Reads the flags and embeds."""
    model_dir = app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD)
    suffix = ".npz" if is_sparse(load_record(model_dir)["config"]) else ".npy"
    output = app.writable_file("output", OUTPUT.value, suffix)
    result = embed_glyphs(model_dir, _SPLIT.value, _VIEWS.value, _COUNT.value)
    embeddings.save(output, result)
    rows, dim = result.vectors.shape
    print(f"{output}: {rows} rows of {dim} dimensions, {len(np.unique(result.labels))} classes")


if __name__ == "__main__":
    app.run(main)
