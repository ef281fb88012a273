r"""Measures precision on CIFAR-100: test images among the training images, and among each other.

    python -m sparse_embed.experiments.evaluate_cifar100 --model_dir=runs/cifar100_flops \
        --records=runs/records

This is the table of the paper's appendix "Cifar-100 results": precision@4 and @16 without
re-ranking, and multiply-adds per row; a record for every weight of --reg_path. With Sparse Deep
Hashing (--loss=sdh), rows that share a hash bucket with the query are ordered by their dense
embeddings, which is what the multiply-adds count.
"""

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.evaluation.cifar100 import evaluate_run
from sparse_embed.flags import app
from sparse_embed.flags.options.evaluate import Cifar100 as Options

DATASETS = ("cifar100", "dense_embeddings")  # the latter are features of its images


def main(options: Options) -> None:
    """Evaluates the run that the options name."""
    run = Run.open(app.existing_path("model_dir", options.model_dir, holding=RECORD))
    if run.config.data.dataset not in DATASETS:
        raise UsageError(
            f"--model_dir={run.folder}: expected a run with --dataset={' or '.join(DATASETS)}"
        )
    folder = app.writable_folder("records", options.records)
    evaluate_run(run, options.data_dir, folder, options.model_name, options.most_images)


if __name__ == "__main__":
    app.run(main, Options)
