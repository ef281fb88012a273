r"""Measures how near trained activations are to rectified Gaussians (section 4, figure 2a).

    python -m sparse_embed.experiments.evaluate_activations --model_dir=runs/flops \
        --records=runs/records

Takes the activations before they are scaled to unit norm, on classes that were not trained on; fits
a rectified Gaussian to each of some dimensions by the least Kolmogorov-Smirnov distance; writes a
record. For the soft threshold it takes the positive part: max(SThresh(Y), 0) = max(Y - 1/2, 0) is
the rectified Gaussian of a shifted Y.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.evaluation.activations import evaluate_run
from sparse_embed.flags import app
from sparse_embed.flags.output import MODEL_DIR, RECORDS

_DIMENSIONS = flags.DEFINE_integer(
    "dimensions", 64, "How many dimensions to fit, evenly spaced.", lower_bound=1
)
_IMAGES = flags.DEFINE_integer("images", 4096, "How many images to use.", lower_bound=100)


def main() -> None:
    """Reads the flags and evaluates."""
    run = Run.open(app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD))
    folder = app.writable_folder("records", RECORDS.value)
    if not run.is_sparse:
        raise UsageError(f"--model_dir={run.folder}: expected an encoder of sparse embeddings")
    evaluate_run(run, folder, _IMAGES.value, _DIMENSIONS.value)


if __name__ == "__main__":
    app.run(main)
