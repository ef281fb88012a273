"""Embeds MegaFace's probes and distractors with an encoder, in one file."""

import pathlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.embedding import embed, examples_at_once, note, searched

if TYPE_CHECKING:
    from sparse_embed.datasets.megaface import Selection


class ImageList(NamedTuple):
    """Images of one kind, as the development kit and InsightFace list them.

    Attributes:
        kind: "probe" or "distractor".
        path: of the list (JSON).
        folder: of the aligned images.
        noises: path of the list of images to leave out; None to leave none out.
    """

    kind: str
    path: pathlib.Path
    folder: pathlib.Path
    noises: pathlib.Path | None


def embed_lists(run: Run, output: pathlib.Path, *lists: ImageList) -> list[int]:
    """Embeds lists one after the other into one file; returns how many images each has.

    The file notes what was left out, and the seconds per image of the last list: the encoder is
    compiled for the first.
    """
    encoder = run.encoder()
    encode, sparse = searched(run, encoder)
    shape = encoder.input_shape[1:]
    left_out: dict[str, Any] = {}
    parts: list[Any] = []
    labels: list[np.ndarray] = []
    for images in lists:
        start = time.perf_counter()
        selection = _select(images, shape)
        noises = images.noises.name if images.noises else None
        left_out |= {
            f"{images.kind}_list": images.path.name,
            f"{images.kind}_noise_list": noises,
            f"noisy_{images.kind}s_left_out": len(selection.noisy),
        }
        noisy = f"left out: {len(selection.noisy)} of {noises}"
        print(f"{images.kind}s: {len(selection.examples)}; {noisy}")
        batches = selection.examples.evaluation_batches(examples_at_once(shape))
        vectors, part_labels = embed(encode, batches, sparse)
        parts.append(vectors)
        labels.append(part_labels)  # -1 for distractors
        seconds = (time.perf_counter() - start) / len(part_labels)
    rows = scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    made = note(run, megaface=left_out, seconds_per_image=seconds)
    embedding_files.save(output, Embeddings(rows, np.concatenate(labels), made))
    return [len(part) for part in labels]


def _select(images: ImageList, shape: tuple[int, int, int]) -> "Selection":
    from sparse_embed.datasets import megaface

    noises = megaface.read_noises(images.noises) if images.noises else frozenset()
    try:
        found = megaface.read_list(images.path)
        if (found.ids is None) != (images.kind == "distractor"):
            raise ValueError(
                f"{images.path}: expected {'no ' * (images.kind != 'probe')}identities (`id`)"
            )
        return megaface.load(found, images.folder, noises, shape)
    except ValueError as error:
        raise UsageError(f"--{images.kind}_list, --{images.kind}_images: {error}") from error
