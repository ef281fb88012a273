"""Embeds a part of a data set with a trained encoder.

    python -m sparse_embed.experiments.embed --model_dir=runs/sparse --output=runs/sparse/test.npz

An encoder with a relu or soft_threshold activation gives sparse embeddings (CSR, `.npz`), one
without activation dense ones (`.npy`); both come with labels and provenance. With --saved_model
the encoder is the SavedModel that training has exported, not the `.keras` file: both give the same.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from absl import flags

from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments import embeddings
from sparse_embed.experiments.data import load_data
from sparse_embed.experiments.embeddings import Embeddings
from sparse_embed.experiments.provenance import provenance
from sparse_embed.experiments.runs import (
    RECORD,
    SAVED_MODEL,
    load_encoder,
    load_record,
    load_saved_model,
)
from sparse_embed.flags import app
from sparse_embed.flags.data import DataConfig
from sparse_embed.flags.output import MODEL_DIR, OUTPUT, USE_SAVED_MODEL
from sparse_embed.retrieval import hash_codes

if TYPE_CHECKING:
    import tensorflow as tf

SPLITS = ["train", "validation", "test", "distractors"]

_SPLIT = flags.DEFINE_enum("split", "test", SPLITS, "Part of the data set; they share no class.")
_VIEWS = flags.DEFINE_integer(
    "views", 3, "How many warped views of each glyph are embedded.", lower_bound=1
)
_COUNT = flags.DEFINE_integer(
    "count", 100_000, "How many distractors to make; only with --split=distractors.", lower_bound=1
)
_INPUTS_OUTPUT = flags.DEFINE_string(
    "inputs_output",
    None,
    "With --dataset=dense_embeddings, where the vectors that were encoded go (.npy), scaled to "
    "unit norm: what re-ranks the sparse ones.",
)
_CODES_OUTPUT = flags.DEFINE_string(
    "codes_output",
    None,
    "With a run of --loss=sdh, where the hash codes go (.npz), ones in the largest dimensions of "
    "each embedding: what SDHSearch searches.",
)
_DISTRACTOR_SEED = 1  # of the warps; one for all encoders, whose rows must show the same images


def embed(
    encoder: Callable, batches: "tf.data.Dataset", sparse: bool, quiet: bool = False
) -> tuple[scipy.sparse.csr_array | np.ndarray, np.ndarray]:
    """Returns the embeddings of all examples of `batches` and their labels.

    Args:
        encoder: function of examples that gives a (batch, d) tensor, such as a Keras model.
        batches: finite, of (examples, labels).
        sparse: whether to keep only the non-zeros, as a CSR matrix; memory then grows with them.
        quiet: whether to leave out the progress bar.
    """
    parts, labels = [], []
    for images, batch_labels in progress_bar(
        batches, desc="embedding", unit="batch", disable=quiet
    ):
        vectors = encoder(images).numpy()
        parts.append(scipy.sparse.csr_array(vectors) if sparse else vectors)
        labels.append(batch_labels.numpy())
    rows = scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    return rows, np.concatenate(labels)


def embed_part(
    encoder: Callable,
    config: dict[str, Any],
    data_dir: str | None,
    split: str,
    views: int,
    count: int,
) -> tuple[Embeddings, "tf.data.Dataset"]:
    """Embeds one part of the data set that the encoder was trained on.

    Args:
        encoder: as for `embed`.
        config: of its training run.
        data_dir: where the data set is now; None for where it was.
        split: which part.
        views: how often glyphs come, each time warped anew.
        count: how many distractors to make, if `split` is that.

    Returns:
        The embeddings, and the batches that they were made of.
    """
    from sparse_embed.datasets import glyphs

    data_config = DataConfig(**config["data"])
    if data_dir:
        data_config = dataclasses.replace(data_config, data_dir=data_dir)
    data = load_data(data_config, views)
    if split not in data.parts:
        raise app.UsageError(f"--split={split}: expected one of {', '.join(data.parts)}")
    part = data.parts[split]
    if split == "distractors":
        batches = glyphs.distractor_batches(part, count, 512, _DISTRACTOR_SEED)
    else:
        batches = data.evaluation_batches(part, 512)
    vectors, labels = embed(encoder, batches, is_sparse(config))
    note = {"split": split, "train": config, **provenance()}
    return Embeddings(vectors, labels, note), batches


def unit_inputs(batches: "tf.data.Dataset", note: dict[str, Any]) -> Embeddings:
    """Returns the examples themselves, which must be vectors, scaled to unit norm."""
    parts, labels = zip(*[(x.numpy(), y.numpy()) for x, y in batches], strict=True)
    vectors = np.concatenate(parts)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return Embeddings(vectors / np.maximum(norms, 1e-12), np.concatenate(labels), note)


def is_sparse(config: dict[str, Any]) -> bool:
    """Whether a run with this config gives embeddings with exact zeros."""
    return config["model"]["activation"] != "none"


def searched(encoder: Callable, config: dict[str, Any]) -> tuple[Callable, bool]:
    """What is searched of an encoder, as a graph, which is faster; and whether it is sparse.

    That is sparse embeddings as they are, dense ones in half precision, and of Sparse Deep Hashing
    the hash codes, as of `retrieval.hash_codes`.

    Args:
        encoder: a Keras model.
        config: of its training run.
    """
    import tensorflow as tf

    hashes, sparse = makes_codes(config), is_sparse(config)

    @tf.function(reduce_retracing=True)
    def encode(examples: Any) -> Any:
        vectors = encoder(examples, training=False)
        if hashes:
            largest = tf.math.top_k(vectors, config["objective"]["active_bits"]).indices
            return tf.reduce_sum(tf.one_hot(largest, vectors.shape[1]), axis=1)
        return vectors if sparse else tf.cast(vectors, tf.float16)

    return encode, hashes or sparse


def searched_suffix(config: dict[str, Any]) -> str:
    """Returns how the name of a file with what is searched ends."""
    return ".npz" if makes_codes(config) or is_sparse(config) else ".npy"


def makes_codes(config: dict[str, Any]) -> bool:
    """Whether a run with this config is of Sparse Deep Hashing."""
    return config["objective"]["loss"] == "sdh"


def main() -> None:
    """Reads the flags and embeds."""
    model_dir = app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD)
    if USE_SAVED_MODEL.value:
        app.existing_path("model_dir", MODEL_DIR.value, holding=SAVED_MODEL)
    for field in dataclasses.fields(DataConfig):
        if field.name != "data_dir" and flags.FLAGS[field.name].present:
            raise app.UsageError(f"--{field.name} is that of the run in --model_dir: leave it out")
    config = load_record(model_dir)["config"]
    suffix = ".npz" if is_sparse(config) else ".npy"
    output = app.writable_file("output", OUTPUT.value, suffix)
    inputs_output = None
    if _INPUTS_OUTPUT.value:
        if config["data"]["dataset"] != "dense_embeddings":
            raise app.UsageError("--inputs_output needs a run with --dataset=dense_embeddings")
        inputs_output = app.writable_file("inputs_output", _INPUTS_OUTPUT.value, ".npy")
    codes_output = None
    if _CODES_OUTPUT.value:
        if not makes_codes(config):
            raise app.UsageError("--codes_output needs a run with --loss=sdh")
        codes_output = app.writable_file("codes_output", _CODES_OUTPUT.value, ".npz")
    load = load_saved_model if USE_SAVED_MODEL.value else load_encoder
    result, batches = embed_part(
        load(model_dir), config, flags.FLAGS.data_dir, _SPLIT.value, _VIEWS.value, _COUNT.value
    )
    embeddings.save(output, result)
    if inputs_output:
        embeddings.save(inputs_output, unit_inputs(batches, result.provenance))
    if codes_output:
        codes = hash_codes(np.asarray(result.vectors), config["objective"]["active_bits"])
        embeddings.save(codes_output, dataclasses.replace(result, vectors=codes))
    rows, dim = result.vectors.shape
    print(f"{output}: {rows} rows of {dim} dimensions, {len(np.unique(result.labels))} classes")


if __name__ == "__main__":
    app.run(main)
