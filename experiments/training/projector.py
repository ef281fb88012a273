"""A sample of embeddings for TensorBoard's projector, with their images."""

import math
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_embed.common.files import atomic_path

if TYPE_CHECKING:
    from sparse_embed.datasets.examples import Part

CONFIG = "projector_config.pbtxt"  # the name that TensorBoard looks for
TENSORS, NAMES, SPRITE = "embeddings.tsv", "classes.tsv", "sprite.png"
_SAMPLE = 1000  # examples: more make the page slow
_SIDE = 32  # pixels of an image in the sprite


def write(folder: pathlib.Path, encode: Callable[[Any], Any], part: "Part") -> None:
    """Embeds the first examples of a part and writes what the projector reads.

    Args:
        folder: folder of the run's events, where TensorBoard looks for it.
        encode: the encoder, as a graph (see `inference`).
        part: what was not trained on. Where it was split by class, the examples of a class lie
            side by side: the first ones are whole classes.
    """
    from tensorboard.plugins import projector

    from sparse_embed.experiments.encoders.embedding import embed, examples_at_once

    size = examples_at_once(part.shape)
    batches = part.evaluation_batches(size).unbatch().take(_SAMPLE).batch(size)
    vectors, labels = embed(encode, batches, sparse=False, quiet=True)
    with atomic_path(folder / TENSORS) as temporary:
        np.savetxt(temporary, vectors, fmt="%.6g", delimiter="\t")
    with atomic_path(folder / NAMES) as temporary:
        temporary.write_text("".join(f"{name}\n" for name in _names(part, labels)), "utf-8")
    config = projector.ProjectorConfig()
    embedding = config.embeddings.add()
    embedding.tensor_name = "embeddings"
    embedding.tensor_path, embedding.metadata_path = TENSORS, NAMES
    if len(part.shape) == 3:
        images = np.concatenate([batch.numpy() for batch, _ in batches])
        sprite = _sprite(images)
        with atomic_path(folder / SPRITE) as temporary:
            sprite.save(temporary)
        embedding.sprite.image_path = SPRITE
        embedding.sprite.single_image_dim.extend([_SIDE, _SIDE])
    with atomic_path(folder / CONFIG) as temporary:  # last: it names the others
        temporary.write_text(str(config))  # protobuf's text format


def _names(part: "Part", labels: np.ndarray) -> list[str]:
    """Returns the name of each example's class in one line; its number if it has no name."""
    names = part.class_names
    known = [names[label] if label < len(names) else str(label) for label in labels.tolist()]
    return [" ".join(str(name).split()) or "(blank)" for name in known]


def _sprite(images: np.ndarray) -> Any:
    """Returns one picture of all images: rows of small squares, as many as there are columns."""
    from PIL import Image

    columns = math.ceil(math.sqrt(len(images)))
    low, high = images.min(), images.max()
    pixels = (255 * (images - low) / max(high - low, 1e-9)).astype(np.uint8)
    mode = "L" if images.shape[-1] == 1 else "RGB"
    sheet = Image.new(mode, (columns * _SIDE, columns * _SIDE))
    for place, image in enumerate(pixels):
        small = Image.fromarray(image[..., 0] if mode == "L" else image).resize((_SIDE, _SIDE))
        sheet.paste(small, (place % columns * _SIDE, place // columns * _SIDE))
    return sheet
