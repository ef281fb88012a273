"""Options of the `evaluate_*` scripts."""

import dataclasses
import os

from sparse_embed.common.options import option
from sparse_embed.flags.config import Kinds
from sparse_embed.flags.options import fields
from sparse_embed.flags.options.fields import Budget


@dataclasses.dataclass(frozen=True)
class Megaface:
    """Identification among distractors."""

    records: str = fields.records()
    dense: str | None = fields.dense()
    sparse: tuple[str, ...] = option((), "Sparse embeddings (.npz) of one or several encoders.")
    narrow_dense: tuple[str, ...] = option(
        (), "More dense embeddings (.npy), such as 128-d ones, not re-ranked."
    )
    sdh: tuple[str, ...] = option((), "Hash codes (.npz) of one or several encoders.")
    distractors: int = fields.distractors()
    data_name: str = fields.data_name()
    only: tuple[str, ...] = fields.only()
    k: int = fields.k()
    threshold: float | None = fields.threshold()
    keep: tuple[Budget, ...] = fields.keep()
    timed_queries: int = option(
        200,
        "How many queries are timed, one at a time, all methods in turns; 0 for none.",
        lower=0,
    )
    build_threads: int = option(
        os.cpu_count() or 1,
        "Threads to build and to measure recall with; queries are always timed on one.",
        lower=1,
    )


@dataclasses.dataclass(frozen=True)
class Gallery:
    """What the report's gallery shows."""

    records: str = fields.records()
    database: str | None = fields.database()
    gallery_images: str | None = option(None, "Images of the database's rows (.npy).")
    data_name: str = fields.data_name()


MEGAFACE = Kinds(
    "what",
    "What to record: the recall of every method, or a gallery, which --gallery_images implies.",
    {"recall": Megaface, "gallery": Gallery},
    {"gallery_images": "gallery"},
)


@dataclasses.dataclass(frozen=True)
class Verification:
    """Pairs of images: do both show the same class."""

    records: str = fields.records()
    data_name: str = fields.data_name()
    pairs: tuple[str, ...] = option((), "Embeddings of pairs (.npy, .npz), of several encoders.")
    pack: str | None = option(None, "Verification pack (.bin) to embed with --model_dir.")
    model_dir: str | None = fields.model_dir()
    flip_sum: bool = option(
        False, "Adds the embedding of the mirrored image to each; only with --pack."
    )


@dataclasses.dataclass(frozen=True)
class Cifar100:
    """Precision on CIFAR-100."""

    model_dir: str | None = fields.model_dir()
    records: str = fields.records()
    data_dir: str | None = fields.data_dir()
    model_name: str | None = option(
        None, "Model of the paper's table that the run is; default: its folder's name."
    )
    most_images: int | None = option(
        None,
        "Most training and test images to take, the first ones; all if not given.",
        lower=20,
    )


@dataclasses.dataclass(frozen=True)
class Activations:
    """How near activations are to rectified Gaussians."""

    model_dir: str | None = fields.model_dir()
    records: str = fields.records()
    dimensions: int = option(64, "How many dimensions to fit, evenly spaced.", lower=1)
    images: int = option(4096, "How many images to use.", lower=100)
