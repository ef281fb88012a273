r"""Measures precision on CIFAR-100: test images among the training images, and among each other.

    python -m sparse_embed.experiments.evaluate_cifar100 --model_dir=runs/cifar100_flops \
        --records=runs/records

This is the table of the paper's appendix "Cifar-100 results": precision@4 and @16 without
re-ranking, and multiply-adds per row; a record for every weight of --reg_path. With Sparse Deep
Hashing (--loss=sdh), rows that share a hash bucket with the query are ordered by their dense
embeddings, which is what the multiply-adds count.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.evaluation.cifar100 import evaluate_run
from sparse_embed.flags import app
from sparse_embed.flags.config import define
from sparse_embed.flags.output import MODEL_DIR, RECORDS
from sparse_embed.flags.train_config import DataConfig

DATASETS = ("cifar100", "dense_embeddings")  # the latter are features of its images

define(DataConfig, only=["data_dir"])
_MODEL_NAME = flags.DEFINE_string(
    "model_name", None, "Model of the paper's table that the run is; default: its folder's name."
)
_MOST_IMAGES = flags.DEFINE_integer(
    "most_images",
    None,
    "Most training and test images to take, the first ones; all if not given.",
    lower_bound=20,
)


def main() -> None:
    """Reads the flags and evaluates."""
    run = Run.open(app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD))
    if run.config.data.dataset not in DATASETS:
        raise UsageError(
            f"--model_dir={run.folder}: expected a run with --dataset={' or '.join(DATASETS)}"
        )
    folder = app.writable_folder("records", RECORDS.value)
    evaluate_run(run, flags.FLAGS.data_dir, folder, _MODEL_NAME.value, _MOST_IMAGES.value)


if __name__ == "__main__":
    app.run(main)
