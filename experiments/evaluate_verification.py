r"""Verification: do two images show the same class (10-fold accuracy, FPR-TPR, VAL at FAR).

    python -m sparse_embed.experiments.evaluate_verification --data_name=lfw \
        --pack=faces/lfw.bin --model_dir=runs/mobilefacenet_flops_300 --flip_sum
    python -m sparse_embed.experiments.evaluate_verification --data_name=glyphs_easy \
        --pairs=runs/dense512/easy.npy,runs/flops_30/easy.npz

The pairs come from an InsightFace pack, embedded with the encoder in --model_dir, or from files of
embeddings: rows 2i and 2i + 1 of a file are pair i, of one identity if their labels are equal.
"""

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.evaluation.verification import evaluate_pack, evaluate_pairs
from sparse_embed.flags import app
from sparse_embed.flags.options.evaluate import Verification as Options


def main(options: Options) -> None:
    """Evaluates the run that the options name."""
    folder = app.writable_folder("records", options.records)
    if bool(options.pairs) == bool(options.pack):
        raise UsageError("expected one of --pairs and --pack")
    if options.flip_sum and not options.pack:
        raise UsageError(
            "--flip_sum needs --pack, since images are mirrored before they are embedded"
        )
    for value in options.pairs:
        evaluate_pairs(app.existing_path("pairs", value), folder, options.data_name)
    if options.pack:
        run = Run.open(app.existing_path("model_dir", options.model_dir, holding=RECORD))
        pack = app.existing_path("pack", options.pack)
        evaluate_pack(run, pack, folder, options.data_name, options.flip_sum)


if __name__ == "__main__":
    app.run(main, Options)
