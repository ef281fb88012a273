"""Files of `Sparsifier.save`, also with the checksums mended."""

import functools
import pathlib
import tempfile
import zipfile

import numpy as np
from fuzz import arrays
from fuzz.mutations import Parts

from sparse_embed.common.failures import DataError
from sparse_embed.sparsify import Sparsifier

ALLOWED = (DataError, OSError)
TOKENS = [b"largest_1", b"largest_4", b"largest_0", b"atoms", b"OHDR", b"TREE", b"SNOD", b"HEAP"]


@functools.cache
def seeds() -> list[Parts]:
    """One file, whole, and its members."""
    x = np.random.default_rng(0).normal(size=(30, 3))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "head.keras"
        Sparsifier(dim=6, nonzeros=2, steps=1).fit(x).save(path)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        return [members, {"head.keras": path.read_bytes()}]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """What loads gives rows of unit norm with no more non-zeros than it says."""
    content = parts["head.keras"] if "head.keras" in parts else arrays.zipped(parts)
    (folder / "head.keras").write_bytes(content)
    found = Sparsifier.load(folder / "head.keras")
    x = np.linspace(-1, 1, 2 * found.n_features_in_).reshape(2, -1)
    codes = found.transform(x)
    assert codes.shape == (2, found.dim)
    assert (np.diff(codes.indptr) <= found.nonzeros_).all()
    norms = np.sqrt(codes.multiply(codes).sum(axis=1))
    np.testing.assert_allclose(norms[norms > 0], 1, rtol=1e-4)
