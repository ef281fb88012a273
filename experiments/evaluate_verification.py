r"""Verification: whether pairs of images are told apart (10-fold accuracy, FPR-TPR, VAL at FAR).

    python -m sparse_embed.experiments.evaluate_verification --data_name=lfw \
        --pack=faces/lfw.bin --model_dir=runs/mobilefacenet_flops_300 --flip_sum
    python -m sparse_embed.experiments.evaluate_verification --data_name=glyphs_easy \
        --pairs=runs/dense512/easy.npy,runs/flops_30/easy.npz

The pairs are those of an InsightFace pack, embedded with the encoder in --model_dir, or embedded
already: rows 2i and 2i + 1 of a file are pair i, of one identity if their labels are equal.
"""

import pathlib
from typing import Any

import numpy as np
from absl import flags

from sparse_embed import retrieval
from sparse_embed.experiments import embeddings, records
from sparse_embed.experiments.embed import embed, is_sparse
from sparse_embed.experiments.runs import ENCODER, RECORD, load_encoder, load_record
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DATA_NAME
from sparse_embed.flags.output import MODEL_DIR, RECORDS
from sparse_embed.retrieval.inputs import Matrix

_PAIRS = flags.DEFINE_list("pairs", [], "Embeddings of pairs (.npy, .npz), of several encoders.")
_PACK = flags.DEFINE_string("pack", None, "Verification pack (.bin) to embed with --model_dir.")
_FLIP_SUM = flags.DEFINE_bool(
    "flip_sum", False, "Adds the embedding of the mirrored image to each; only with --pack."
)


def evaluate(
    vectors: Matrix, same: np.ndarray, flipped: Matrix | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the figures of a record, and the raw results: the scores of the pairs."""
    result = retrieval.verification(vectors, same, flipped)
    figures: dict[str, Any] = {
        "pairs": len(same),
        "accuracy": result.accuracy,
        "accuracy_std": result.accuracy_std,
        "dim": vectors.shape[1],
    }
    for far, (val, _, _) in result.val_at_far.items():
        figures[f"val_at_far_{far:g}"] = val
        figures[f"tar_at_far_{far:g}"] = result.tar_at_far[far]
    if not isinstance(vectors, np.ndarray):
        probability = retrieval.activation_probability(vectors)
        figures["activation_probability"] = float(probability.mean())
        figures["flops_per_row"] = retrieval.flops_per_row(vectors)
        figures["suboptimality_ratio"] = retrieval.suboptimality_ratio(vectors)
    return figures, {"scores": result.scores, "same": same}


def _update(
    folder: pathlib.Path, run: str, config: dict[str, Any], file: pathlib.Path, make: Any
) -> None:
    """Updates the record of one encoder on one set of pairs."""
    objective = config.get("objective", {})
    method = objective.get("regularizer", "unknown").replace("none", "dense")
    setting = {"weight": objective.get("regularizer_weight"), "run": run}
    if method == "dense":
        setting = {"dims": config["model"]["embedding_dim"], "run": run}
    key = {
        "experiment": "verification",
        "data": DATA_NAME.value,
        "method": method,
        "setting": setting,
        "flags": {"flip_sum": _FLIP_SUM.value},
    }
    parts = [f"{name}={value}" for name, value in setting.items()]
    flip = "flip_sum" if _FLIP_SUM.value else ""
    name = records.record_name("verification", DATA_NAME.value, method, *parts, flip)
    files = [file, pathlib.Path(_PACK.value)] if _PACK.value else [file]
    records.update(folder, name, key, files, make)


def evaluate_pairs(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Updates the record of a file of embedded pairs."""
    try:
        found = embeddings.load(path)
        same = found.labels[::2] == found.labels[1::2] if len(found.labels) % 2 == 0 else None
        if same is None:
            raise ValueError(f"{len(found.labels)} rows: expected two for each pair")
        _update(
            folder,
            path.parent.name,
            found.provenance.get("train", {}),
            path,
            lambda: evaluate(found.vectors, same),
        )
    except ValueError as error:
        raise app.UsageError(f"--pairs={path}: {error}") from error


def evaluate_pack(model_dir: pathlib.Path, path: pathlib.Path, folder: pathlib.Path) -> None:
    """Embeds the images of a pack and updates the record."""
    config = load_record(model_dir)["config"]

    def make() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        from sparse_embed.datasets import verification_packs

        encoder = load_encoder(model_dir)
        try:
            pack = verification_packs.load(path, tuple(encoder.input_shape[1:]))
        except (OSError, ValueError) as error:
            raise app.UsageError(f"--pack={path}: {error}") from error
        batches = verification_packs.evaluation_batches(pack.images, 256)
        vectors, _ = embed(encoder, batches, is_sparse(config))
        flipped = None
        if _FLIP_SUM.value:
            mirrored = batches.map(lambda images, labels: (images[:, :, ::-1], labels))
            flipped, _ = embed(encoder, mirrored, is_sparse(config))
        return evaluate(vectors, pack.same, flipped)

    _update(folder, model_dir.name, config, model_dir / ENCODER, make)


def main() -> None:
    """Reads the flags and evaluates."""
    folder = app.writable_folder("records", RECORDS.value)
    if bool(_PAIRS.value) == bool(_PACK.value):
        raise app.UsageError("expected one of --pairs and --pack")
    if _FLIP_SUM.value and not _PACK.value:
        raise app.UsageError(
            "--flip_sum needs --pack: the images are mirrored before they are embedded"
        )
    for value in _PAIRS.value:
        evaluate_pairs(app.existing_path("pairs", value), folder)
    if _PACK.value:
        model_dir = app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD)
        evaluate_pack(model_dir, app.existing_path("pack", _PACK.value), folder)


if __name__ == "__main__":
    app.run(main)
