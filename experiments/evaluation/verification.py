"""Verification of pairs: accuracy, true positive rates and sparsity of one encoder, as a record."""

import pathlib
from collections.abc import Callable

import numpy as np

from sparse_embed import retrieval
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import load_flag
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.embedding import embed, examples_at_once, inference
from sparse_embed.retrieval.inputs import Matrix

Made = tuple[Record, dict[str, np.ndarray]]


def evaluate(vectors: Matrix, same: np.ndarray, flipped: Matrix | None = None) -> Made:
    """Returns the metrics of a record, and the raw results: the scores of the pairs."""
    result = retrieval.verification(vectors, same, flipped)
    metrics: Record = {
        "pairs": len(same),
        "accuracy": result.accuracy,
        "accuracy_std": result.accuracy_std,
        "dim": vectors.shape[1],
    }
    for far, (val, _, _) in result.val_at_far.items():
        metrics[f"val_at_far_{far:g}"] = val
        metrics[f"tar_at_far_{far:g}"] = result.tar_at_far[far]
    if not isinstance(vectors, np.ndarray):
        metrics |= retrieval.sparsity_metrics(vectors)
    return metrics, {"scores": result.scores, "same": same}


def update(
    folder: pathlib.Path,
    data_name: str,
    method: str,
    setting: Record,
    seed: int,
    files: list[pathlib.Path],
    make: Callable[[], Made],
    flip_sum: bool = False,
) -> None:
    """Updates the record of one encoder on one set of pairs."""
    key = {
        "experiment": "verification",
        "data": data_name,
        "method": method,
        "setting": setting,
        "seed": seed,
        "flags": {"flip_sum": flip_sum},
    }
    records.update(folder, key, files, make, "flip_sum" if flip_sum else "")


def evaluate_pairs(path: pathlib.Path, folder: pathlib.Path, data_name: str) -> None:
    """Updates the record of a file of embedded pairs: rows 2i and 2i + 1 are pair i."""
    found = load_flag("pairs", path)
    if len(found.labels) % 2:
        raise UsageError(f"--pairs={path}: {len(found.labels)} rows: expected two for each pair")
    same = found.labels[::2] == found.labels[1::2]
    setting = {**found.setting, "run": path.parent.name}
    try:
        update(
            folder,
            data_name,
            found.method,
            setting,
            found.seed,
            [path],
            lambda: evaluate(found.vectors, same),
        )
    except ValueError as error:
        raise UsageError(f"--pairs={path}: {error}") from error


def evaluate_pack(
    run: Run, path: pathlib.Path, folder: pathlib.Path, data_name: str, flip_sum: bool
) -> None:
    """Embeds the images of a pack and updates the record."""

    def make() -> Made:
        from sparse_embed.datasets import verification_packs

        encoder = run.encoder()
        try:
            pack = verification_packs.load(path, tuple(encoder.input_shape[1:]))
        except (OSError, ValueError) as error:
            raise UsageError(f"--pack={path}: {error}") from error
        encode = inference(encoder)
        batches = pack.images.evaluation_batches(examples_at_once(pack.images.shape))
        vectors, _ = embed(encode, batches, run.is_sparse)
        flipped = None
        if flip_sum:
            mirrored = batches.map(lambda images, labels: (images[:, :, ::-1], labels))
            flipped, _ = embed(encode, mirrored, run.is_sparse)
        return evaluate(vectors, pack.same, flipped)

    files = [run.encoder_file, path]
    update(folder, data_name, run.method, run.setting, run.seed, files, make, flip_sum)
