"""From an encoder and batches of examples to embeddings."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.provenance import provenance
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.data import load_data, reading_part
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.encoder import Encoder
from sparse_embed.flags.train_config import DataConfig

if TYPE_CHECKING:
    import tensorflow as tf

    from sparse_embed.datasets.examples import Part

Encode = Callable[[Any], Any]  # a Keras model or another function: examples -> (batch, d) tensor

DISTRACTOR_SEED = 1  # of the warps; the same for all encoders, whose rows must show the same images
_EXAMPLES, _PIXELS = 512, 512 * 32 * 32  # the most that an encoder gets at once


def examples_at_once(shape: Sequence[int]) -> int:
    """Returns how many examples of a shape to embed at once.

    An encoder's memory grows with the pixels it gets: 512 images of 32x32, 41 of 112x112.
    """
    pixels = math.prod(shape[:2]) if len(shape) == 3 else 1
    return max(1, min(_EXAMPLES, _PIXELS // pixels))


def inference(encoder: Encode) -> Encode:
    """Returns an encoder as one graph for batches of any size; a graph is returned as it is.

    A graph frees each activation after its last use. Called without one, a Keras model keeps the
    activations of all layers until it returns: 5.2 GB, not 1.4, for 32 faces and `resnet101`.

    Args:
        encoder: a Keras model, or another function from examples to a (batch, d) tensor.
    """
    import keras
    import tensorflow as tf

    graph: Encode = encoder
    if isinstance(encoder, tf.types.experimental.PolymorphicFunction):
        return graph
    if not isinstance(encoder, keras.Model):
        graph = tf.function(encoder, reduce_retracing=True)
        return graph
    examples = tf.TensorSpec((None, *encoder.input_shape[1:]), encoder.input.dtype)
    graph = tf.function(lambda x: encoder(x, training=False), input_signature=[examples])
    return graph


def embed(
    encoder: Encode | Encoder, batches: "tf.data.Dataset", sparse: bool, quiet: bool = False
) -> tuple[scipy.sparse.csr_array | np.ndarray, np.ndarray]:
    """Returns the embeddings of all examples of `batches` and their labels.

    Args:
        encoder: an `Encoder`, or as for `inference`; a graph if it is to embed several times.
        batches: finite, of (examples, labels); see `examples_at_once`.
        sparse: whether to keep only the non-zeros, as a CSR matrix; memory then grows with them.
        quiet: whether to leave out the progress bar.

    Raises:
        DataError: there is no example that can be read.
    """
    encode = encoder.encode if isinstance(encoder, Encoder) else inference(encoder)
    parts, labels = [], []
    with reading_part():
        for images, batch_labels in progress_bar(
            batches, desc="embedding", unit="batch", disable=quiet
        ):
            vectors = np.asarray(encode(images))
            parts.append(scipy.sparse.csr_array(vectors) if sparse else vectors)
            labels.append(batch_labels.numpy())
    if not labels:
        raise DataError("expected at least one example that can be read, got none")
    rows = scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    return rows, np.concatenate(labels)


def embed_part(
    run: Run,
    encoder: Encode | Encoder,
    data_dir: str | None,
    split: str,
    views: int = 1,
    count: int = 0,
    most: int | None = None,
    sparse: bool | None = None,
) -> tuple[Embeddings, "tf.data.Dataset"]:
    """Embeds one part of the data set that a run was trained on.

    Args:
        run: the run.
        encoder: its encoder, as for `embed`.
        data_dir: where the data set is now; None for where it was.
        split: which part.
        views: how often each example comes if it is warped anew each time, as glyphs are.
        count: how many distractors to make, if `split` is that.
        most: how many examples to embed at most, the first ones; None for all.
        sparse: whether to keep only the non-zeros; None for what the run's embeddings are.

    Returns:
        The embeddings, and the batches that they were made from.
    """
    config = run.config.data
    part = load_split(dataclasses.replace(config, data_dir=data_dir or config.data_dir), split)
    size = split_size(part, split, views, count)
    batches = split_batches(part, split, views, range(size if most is None else min(most, size)))
    with reading_part(part):
        vectors, labels = embed(encoder, batches, run.is_sparse if sparse is None else sparse)
    return Embeddings(vectors, labels, note(run, split=split)), batches


def load_split(config: DataConfig, split: str) -> "Part":
    """Returns one part of a data set; UsageError if it has no such part."""
    parts = load_data(config)
    if split not in parts:
        raise UsageError(f"--split={split}: expected one of {', '.join(parts)}")
    return parts[split]


def split_size(part: "Part", split: str, views: int, count: int) -> int:
    """Returns how many examples are embedded; see `embed_part`."""
    return count if split == "distractors" else part.size(views)


def split_batches(part: "Part", split: str, views: int, span: range) -> "tf.data.Dataset":
    """Returns batches of the examples whose numbers are in `span`; see `embed_part`."""
    size = examples_at_once(part.shape)
    if split == "distractors":
        return part.stream(len(span), size, DISTRACTOR_SEED, span.start)
    return part.evaluation_batches(size, views, start=span.start, count=len(span))


def note(run: Run, **more: Any) -> dict[str, Any]:
    """Returns the note on how embeddings were made."""
    return {**more, "train": run.config.to_dict(), **provenance()}


def unit_inputs(batches: "tf.data.Dataset", note: dict[str, Any]) -> Embeddings:
    """Returns the examples, which must be vectors, scaled to unit norm."""
    parts, labels = zip(*[(x.numpy(), y.numpy()) for x, y in batches], strict=True)
    vectors = np.concatenate(parts)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return Embeddings(vectors / np.maximum(norms, 1e-12), np.concatenate(labels), note)


def searched(run: Run, encoder: Encode) -> tuple[Encode, bool]:
    """Returns the function from images to the rows to search, and whether these are sparse.

    Sparse embeddings stay as they are, dense ones become half precision, and Sparse Deep Hashing
    gives hash codes, as from `retrieval.hash_codes`. The function is a graph, as of `inference`.
    """
    import tensorflow as tf

    hashes, sparse, encode_all = run.config.makes_codes, run.is_sparse, inference(encoder)

    def encode(examples: tf.Tensor) -> tf.Tensor:
        vectors = encode_all(examples)
        if hashes:
            largest = tf.math.top_k(vectors, run.config.objective.active_bits).indices
            return tf.reduce_sum(tf.one_hot(largest, vectors.shape[1]), axis=1)
        return vectors if sparse else tf.cast(vectors, tf.float16)

    return inference(encode), hashes or sparse


def set_name(path: pathlib.Path) -> str:
    """Returns the name of a stored set of images, the start of its file's name."""
    return path.stem.partition("_")[0]


def embed_sets(
    run: Run, files: list[pathlib.Path], distractors: int | None = None
) -> list[pathlib.Path]:
    """Embeds stored images (see `evaluation_sets`) with every encoder of a run, beside the encoder.

    Hash codes serve only identification: Sparse Deep Hashing leaves out the other sets.

    Args:
        run: the run.
        files: the stored images.
        distractors: how many of the images labelled -1, which come last, are embedded; None for
            all.

    Returns:
        The files of embeddings: `<set name>.npz` or `.npy` in each encoder's folder.
    """
    from sparse_embed.datasets import evaluation_sets

    written = []
    for snapshot in run.snapshots:
        encoder = snapshot.encoder()
        shape = encoder.input_shape[1:]
        encode, sparse = searched(snapshot, encoder)
        for path in files:
            name = set_name(path)
            if run.config.makes_codes and name != "identification":
                continue
            labels = read_npy(path.with_suffix(".labels.npy"), expected=f"the labels of {path}")
            count = len(labels) if distractors is None else int((labels >= 0).sum()) + distractors
            batches = evaluation_sets.stored_batches(path, labels, examples_at_once(shape), count)
            vectors, labels = embed(encode, batches, sparse)
            written.append(snapshot.folder / f"{name}{snapshot.suffix}")
            found = Embeddings(vectors, labels, note(snapshot, split=name))
            embedding_files.save(written[-1], found)
    return written
