r"""Measures how near trained activations are to rectified Gaussians (section 4, figure 2a).

    python -m sparse_embed.experiments.evaluate_activations --model_dir=runs/flops \
        --records=runs/records

Takes the activations before they are scaled to unit norm, on classes that were not trained on; fits
a rectified Gaussian to each of some dimensions by the least Kolmogorov-Smirnov distance; writes a
record. For the soft threshold it takes the positive part: max(SThresh(Y), 0) = max(Y - 1/2, 0) is
the rectified Gaussian of a shifted Y.
"""

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.evaluation.activations import evaluate_run
from sparse_embed.flags import app
from sparse_embed.flags.options.evaluate import Activations as Options


def main(options: Options) -> None:
    """Evaluates the run that the options name."""
    run = Run.open(app.existing_path("model_dir", options.model_dir, holding=RECORD))
    folder = app.writable_folder("records", options.records)
    if not run.is_sparse:
        raise UsageError(f"--model_dir={run.folder}: expected an encoder of sparse embeddings")
    evaluate_run(run, folder, options.images, options.dimensions)


if __name__ == "__main__":
    app.run(main, Options)
