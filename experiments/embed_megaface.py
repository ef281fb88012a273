r"""Embeds MegaFace's probes (FaceScrub) and distractors in one file, for `evaluate_megaface`.

    python -m sparse_embed.experiments.embed_megaface --model_dir=runs/mobilefacenet_flops_300 \
        --probe_list=facescrub_features_list.json --probe_images=facescrub_aligned \
        --probe_noises=facescrub_noises.txt \
        --distractor_list=megaface_features_list.json_1000000_1 \
        --distractor_images=megaface_aligned --distractor_noises=megaface_noises.txt \
        --output=runs/mobilefacenet_flops_300/identification.npz

Lists and noise lists are those of the development kit and of InsightFace. Images in a noise list
are left out, which is printed and noted in the file; without a list, none is left out. A run with
--loss=sdh gives hash codes.
"""

import pathlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.encoders.embedding import embed, examples_at_once, note, searched
from sparse_embed.flags import app
from sparse_embed.flags.output import MODEL_DIR, OUTPUT

if TYPE_CHECKING:
    from sparse_embed.datasets.megaface import Selection

KINDS = ("probe", "distractor")

for _kind in KINDS:
    flags.DEFINE_string(f"{_kind}_list", None, f"List of the {_kind} images (JSON).")
    flags.DEFINE_string(f"{_kind}_images", None, f"Folder of the aligned {_kind} images.")
    flags.DEFINE_string(f"{_kind}_noises", None, f"Noise list of the {_kind} images; optional.")


def select(kind: str, shape: tuple[int, int, int]) -> tuple["Selection", dict[str, Any]]:
    """Finds the images of one kind; returns them, and a note on what was left out and why."""
    from sparse_embed.datasets import megaface

    values = {name: flags.FLAGS[f"{kind}_{name}"].value for name in ("list", "images", "noises")}
    list_path = app.existing_path(f"{kind}_list", values["list"])
    folder = app.existing_path(f"{kind}_images", values["images"])
    noises: frozenset[str] = frozenset()
    if values["noises"]:
        noises = megaface.read_noises(app.existing_path(f"{kind}_noises", values["noises"]))
    try:
        images = megaface.read_list(list_path)
        if (images.ids is None) != (kind == "distractor"):
            raise ValueError(f"{list_path}: expected {'no ' * (kind != 'probe')}identities (`id`)")
        selection = megaface.load(images, folder, noises, shape)
    except ValueError as error:
        raise UsageError(f"--{kind}_list, --{kind}_images: {error}") from error
    noise_list = pathlib.Path(values["noises"]).name if values["noises"] else None
    note = {
        f"{kind}_list": list_path.name,
        f"{kind}_noise_list": noise_list,
        f"noisy_{kind}s_left_out": len(selection.noisy),
    }
    print(f"{kind}s: {len(selection.examples)}; left out: {len(selection.noisy)} of {noise_list}")
    return selection, note


def main() -> None:
    """Reads the flags and embeds."""
    run = Run.open(app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD))
    output = app.writable_file("output", OUTPUT.value, run.suffix)
    for kind in KINDS:
        for name in ("list", "images"):
            app.existing_path(f"{kind}_{name}", flags.FLAGS[f"{kind}_{name}"].value)
    encoder = run.encoder()
    encode, sparse = searched(run, encoder)
    size = examples_at_once(encoder.input_shape[1:])
    left_out: dict[str, Any] = {}
    parts: list[Any] = []
    labels: list[np.ndarray] = []
    for kind in KINDS:
        start = time.perf_counter()
        selection, more = select(kind, encoder.input_shape[1:])
        left_out |= more
        vectors, part_labels = embed(encode, selection.examples.evaluation_batches(size), sparse)
        parts.append(vectors)
        labels.append(part_labels)  # -1 for distractors
        # What stays is the distractors' time: the encoder was compiled for the probes.
        seconds = (time.perf_counter() - start) / len(part_labels)
    rows = scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
    made = note(run, megaface=left_out, seconds_per_image=seconds)
    found = Embeddings(rows, np.concatenate(labels), made)
    embedding_files.save(output, found)
    print(f"{output}: {len(labels[0])} probes, {len(labels[1])} distractors")


if __name__ == "__main__":
    app.run(main)
