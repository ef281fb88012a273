"""Verification packs: pickles of pairs of images."""

import pathlib
import pickle

import numpy as np
from fuzz import pictures
from fuzz.mutations import Parts
from fuzz.targets import pickles

from sparse_embed.datasets import verification_packs

TOKENS = pickles.TOKENS
_SHAPE = (pictures.SIZE, pictures.SIZE, 3)


def seeds() -> list[Parts]:
    """Images as bytes, as arrays of bytes and as pixels."""
    encoded = [pictures.encoded("PNG", seed) for seed in range(4)]
    pixels = list(np.random.default_rng(0).integers(0, 256, (4, *_SHAPE), np.uint8))
    buffers = [np.frombuffer(data, np.uint8) for data in encoded]
    made = [
        {"pack": pickle.dumps((images, [True, False]), protocol)}
        for images in (encoded, pixels, buffers)
        for protocol in (2, 4, 5)
    ]
    return [*made, {"pack": pickle.dumps([tuple(encoded), np.array([True, False])], 2)}]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Reads the pack and its first images."""
    path = folder / "lfw.bin"
    path.write_bytes(parts["pack"])
    pack = verification_packs.load(path, _SHAPE)
    assert len(pack.images) == 2 * len(pack.same)
    assert pack.same.dtype == bool
    for row in range(min(len(pack.images), 4)):
        pack.images.source.check(row)
