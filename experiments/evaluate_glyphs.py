"""The whole comparison on glyphs, from training to records; what has been made is not made again.

    python -m sparse_embed.experiments.evaluate_glyphs --distractors=1000000

Trains a dense 512-d encoder, encoders with the FLOPs and the l1 penalty at several weights, and one
of Sparse Deep Hashing; draws the images of the evaluation once (see `datasets.glyph_sets`); embeds
them with every encoder; then compares all methods of search (`evaluate_megaface`) and verifies
pairs (`evaluate_verification`). Nothing else should run while search is timed.
"""

import pathlib
from typing import Any

import numpy as np
from absl import flags

from sparse_embed.common.files import atomic_path
from sparse_embed.experiments import embeddings
from sparse_embed.experiments.embed import embed, makes_codes, searched, searched_suffix
from sparse_embed.experiments.embeddings import Embeddings
from sparse_embed.experiments.provenance import provenance
from sparse_embed.experiments.runs import ENCODER, RECORD, load_encoder, load_record
from sparse_embed.experiments.steps import is_done, run_script, run_step
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DISTRACTORS, ONLY
from sparse_embed.flags.output import RECORDS

_RUNS_DIR = flags.DEFINE_string("runs_dir", "runs/glyphs", "Folder for all that is made.")
_PROBE_CLASSES = flags.DEFINE_integer(
    "probe_classes", 400, "How many of the test classes the probes are from.", lower_bound=2
)
_PAIR_COUNT = flags.DEFINE_integer(
    "pair_count", 6000, "Pairs of each verification set, as many as in LFW.", lower_bound=20
)
_FLOPS_WEIGHTS = flags.DEFINE_string("flops_weights", "15,30,60", "Weights of the FLOPs penalty.")
_L1_WEIGHTS = flags.DEFINE_string("l1_weights", "0.4,0.6,0.8", "Weights of the l1 penalty.")
_TRAIN_FLAGS = flags.DEFINE_list("train_flags", [], "More flags for every training.")

PAIR_SETS = ("easy", "hard")
_DISTRACTOR_SEED = 1


def train(runs_dir: pathlib.Path) -> list[pathlib.Path]:
    """Trains what is not trained yet; returns the encoders' folders, dense first, SDH last."""
    runs = {
        "dense512": ("glyphs_dense512", []),
        "flops": ("glyphs_flops", [f"--reg_path={_FLOPS_WEIGHTS.value}"]),
        "l1": ("glyphs_l1", [f"--reg_path={_L1_WEIGHTS.value}"]),
        "sdh": ("glyphs_sdh", [f"--warm_start={runs_dir / 'dense512'}"]),
    }
    folders = []
    for name, (preset, more) in runs.items():
        folder = runs_dir / name
        run_step(
            folder / RECORD,
            [app.preset_path(preset)],
            "train",
            f"--preset={preset}",
            *more,
            *_TRAIN_FLAGS.value,
            f"--model_dir={folder}",
        )
        snapshots = sorted((folder / "path").glob("*"))
        folders += snapshots or [folder]
    return folders


def draw_sets(
    folder: pathlib.Path, distractors: int, probe_classes: int, pairs: int
) -> dict[str, pathlib.Path]:
    """Draws and keeps the images of every evaluation set; returns the files by name."""
    from sparse_embed.datasets import glyph_sets, glyphs

    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "identification": folder / f"identification_{probe_classes}_{distractors}.npy",
        **{name: folder / f"{name}_{pairs}.npy" for name in PAIR_SETS},
    }
    if all(path.exists() for path in files.values()):
        return files
    parts = glyphs.split(glyphs.load())

    def keep(name: str, streams: list[Any], labels: np.ndarray) -> None:
        path = files[name]
        if not path.exists():
            with atomic_path(path.with_suffix(".labels.npy")) as temporary:
                np.save(temporary, labels)
            glyph_sets.store(path, streams, len(labels))

    probes, others = glyph_sets.identification_parts(parts, probe_classes)
    stream = glyphs.distractor_batches(others, distractors, 512, _DISTRACTOR_SEED)
    labels = np.concatenate([probes.labels, np.full(distractors, -1, np.int32)])
    keep("identification", [glyph_sets.views(probes), stream], labels)
    for name, warp in (("easy", glyph_sets.EASY), ("hard", glyph_sets.HARD)):
        images, _ = glyph_sets.verification_pairs(parts.test, pairs, other_typeface=name == "hard")
        keep(name, [glyph_sets.views(images, warp)], images.labels)
    return files


def embed_sets(folder: pathlib.Path, files: dict[str, pathlib.Path]) -> dict[str, pathlib.Path]:
    """Embeds the sets with one encoder; returns the files by name.

    Of Sparse Deep Hashing that are hash codes, which identify alone.
    """
    config = load_record(folder)["config"]
    names = ["identification"] if makes_codes(config) else list(files)
    products = {name: folder / f"{name}{searched_suffix(config)}" for name in names}
    for name, product in products.items():
        if is_done(product, [files[name], folder / ENCODER]):
            continue
        from sparse_embed.datasets import glyph_sets

        print(f"{product}: embedding", flush=True)
        labels = np.load(files[name].with_suffix(".labels.npy"))
        batches = glyph_sets.stored_batches(files[name], labels, 512)
        encode, sparse = searched(load_encoder(folder), config)
        vectors, labels = embed(encode, batches, sparse)
        note = {"split": name, "train": config, **provenance()}
        embeddings.save(product, Embeddings(vectors, labels, note))
    return products


def main() -> None:
    """Runs the steps."""
    runs_dir = app.writable_folder("runs_dir", _RUNS_DIR.value)
    records = app.writable_folder("records", RECORDS.value)
    folders = train(runs_dir)
    files = draw_sets(
        runs_dir / "images", DISTRACTORS.value, _PROBE_CLASSES.value, _PAIR_COUNT.value
    )
    products = [embed_sets(folder, files) for folder in folders]
    dense, *sparse, hashes = [product["identification"] for product in products]
    arguments = [
        f"--dense={dense}",
        f"--sparse={','.join(map(str, sparse))}",
        f"--sdh={hashes}",
        f"--distractors={DISTRACTORS.value}",
        f"--only={','.join(ONLY.value)}",
        f"--records={records}",
    ]
    run_script("evaluate_megaface", *arguments)
    for name in PAIR_SETS:
        pairs = ",".join(str(product[name]) for product in products if name in product)
        run_script(
            "evaluate_verification",
            f"--pairs={pairs}",
            f"--data_name=glyphs_{name}",
            f"--records={records}",
        )


if __name__ == "__main__":
    app.run(main)
