r"""Verification: do two images show the same class (10-fold accuracy, FPR-TPR, VAL at FAR).

    python -m sparse_embed.experiments.evaluate_verification --data_name=lfw \
        --pack=faces/lfw.bin --model_dir=runs/mobilefacenet_flops_300 --flip_sum
    python -m sparse_embed.experiments.evaluate_verification --data_name=glyphs_easy \
        --pairs=runs/dense512/easy.npy,runs/flops_30/easy.npz

The pairs come from an InsightFace pack, embedded with the encoder in --model_dir, or from files of
embeddings: rows 2i and 2i + 1 of a file are pair i, of one identity if their labels are equal.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.evaluation.verification import evaluate_pack, evaluate_pairs
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import DATA_NAME
from sparse_embed.flags.output import MODEL_DIR, RECORDS

_PAIRS = flags.DEFINE_list("pairs", [], "Embeddings of pairs (.npy, .npz), of several encoders.")
_PACK = flags.DEFINE_string("pack", None, "Verification pack (.bin) to embed with --model_dir.")
_FLIP_SUM = flags.DEFINE_bool(
    "flip_sum", False, "Adds the embedding of the mirrored image to each; only with --pack."
)


def main() -> None:
    """Reads the flags and evaluates."""
    folder = app.writable_folder("records", RECORDS.value)
    if bool(_PAIRS.value) == bool(_PACK.value):
        raise UsageError("expected one of --pairs and --pack")
    if _FLIP_SUM.value and not _PACK.value:
        raise UsageError(
            "--flip_sum needs --pack, since images are mirrored before they are embedded"
        )
    for value in _PAIRS.value:
        evaluate_pairs(app.existing_path("pairs", value), folder, DATA_NAME.value)
    if _PACK.value:
        run = Run.open(app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD))
        pack = app.existing_path("pack", _PACK.value)
        evaluate_pack(run, pack, folder, DATA_NAME.value, _FLIP_SUM.value)


if __name__ == "__main__":
    app.run(main)
