"""What of a reproduction the demonstration serves."""

import pathlib
from typing import NamedTuple

from sparse_embed.experiments.encoders.encoder import open_encoder
from sparse_embed.experiments.serving.collection import Collection, open_dense, open_rows
from sparse_embed.experiments.serving.pictures import StoredPictures


class Found(NamedTuple):
    """The files of one network of a reproduction.

    Attributes:
        sparse: folder of a sparse encoder, with its embeddings.
        dense: folder of the dense one.
        images: the pictures that both have embedded.
    """

    sparse: pathlib.Path
    dense: pathlib.Path
    images: pathlib.Path


def find(run_dir: pathlib.Path) -> Found | None:
    """Returns the first network whose encoders are all there, trained with the smallest weight.

    See `orchestration.plans` for the folders.
    """
    images = sorted((run_dir / "images").glob("identification_*[0-9].npy"))
    for seed in sorted(run_dir.glob("*/seed*")):
        paths = sorted(seed.glob("flops/path/lambda_*"), key=_weight)
        whole = [path for path in paths if (path / "identification.npz").exists()]
        dense = seed / "dense512"
        if whole and images and (dense / "identification.npy").exists():
            return Found(whole[0], dense, images[0])
    return None


def _weight(folder: pathlib.Path) -> float:
    return float(folder.name.removeprefix("lambda_"))


def open_all(found: Found, num_threads: int) -> Collection:
    """Opens the embeddings, the encoders and the pictures."""
    rows = open_rows("run_dir", found.sparse / "identification.npz")
    return Collection(
        rows,
        open_encoder(found.sparse, num_threads=num_threads),
        open_dense("run_dir", found.dense / "identification.npy"),
        open_encoder(found.dense, num_threads=num_threads),
        StoredPictures.open("run_dir", found.images, rows.shape[0]),
        num_threads,
    )
