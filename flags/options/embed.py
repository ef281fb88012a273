"""Options of `embed`, by source, and of `embed_parts`."""

import dataclasses

from sparse_embed.common.options import option
from sparse_embed.flags.config import Kinds
from sparse_embed.flags.options import fields
from sparse_embed.flags.options.fields import Budget


@dataclasses.dataclass(frozen=True)
class Split:
    """A part of the run's data set."""

    model_dir: str | None = fields.model_dir()
    output: str | None = fields.output()
    data_dir: str | None = fields.data_dir()
    split: str = fields.split()
    views: int = fields.views()
    count: int = fields.count()
    encoder: str = fields.encoder()
    keep: tuple[Budget, ...] = fields.keep()
    features: bool = option(False, "Write the features before the embedding layer, as .npy.")
    inputs_output: str | None = option(
        None,
        "With --dataset=dense_embeddings, where to write the input vectors (.npy), scaled to unit "
        "norm, to re-rank the sparse ones with.",
    )
    codes_output: str | None = option(
        None,
        "With a run of --loss=sdh, where to write the hash codes (.npz) for SDHSearch: ones in the "
        "largest dimensions of each embedding.",
    )


@dataclasses.dataclass(frozen=True)
class Megaface:
    """MegaFace's probes and distractors, in one file."""

    model_dir: str | None = fields.model_dir()
    output: str | None = fields.output()
    probe_list: str | None = option(None, "List of the probe images (JSON).")
    probe_images: str | None = option(None, "Folder of the aligned probe images.")
    probe_noises: str | None = option(None, "Noise list of the probe images; optional.")
    distractor_list: str | None = option(None, "List of the distractor images (JSON).")
    distractor_images: str | None = option(None, "Folder of the aligned distractor images.")
    distractor_noises: str | None = option(None, "Noise list of the distractor images; optional.")


@dataclasses.dataclass(frozen=True)
class Sets:
    """Stored evaluation sets, with every encoder of a run, beside the encoder."""

    model_dir: str | None = fields.model_dir()
    sets: tuple[str, ...] = option((), "Stored images (.npy) that prepare_data drew.")
    distractors: int = fields.distractors()


OPTIONS = Kinds(
    "source",
    "What to embed: a split of the run's data set, MegaFace, or stored evaluation sets.",
    {"split": Split, "megaface": Megaface, "sets": Sets},
)


@dataclasses.dataclass(frozen=True)
class Parts:
    """Much data, in parts, on several workers."""

    model_dir: str | None = fields.model_dir()
    parts_dir: str | None = option(None, "Folder of the parts.")
    data_dir: str | None = fields.data_dir()
    image_folder: str | None = fields.image_folder()
    split: str | None = option(
        None, "Part of the data set, such as train, validation or test (the default)."
    )
    views: int = fields.views()
    count: int = fields.count()
    part_examples: int = option(16_384, "Examples per part, a multiple of 256.", lower=256)
    workers: int = option(1, "How many workers; 0 to embed in this process, without Ray.", lower=0)
    worker_cpus: int = option(1, "Cores of each worker.", lower=1)
    scaling: bool = option(False, "Whether to measure the speed of one worker too.")
    ray_address: str | None = fields.ray_address()
    ray_temp_folder: str | None = fields.ray_temp_folder()
