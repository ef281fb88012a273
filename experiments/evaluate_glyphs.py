"""The whole comparison on glyphs, from training to records; finished steps are not repeated.

    python -m sparse_embed.experiments.evaluate_glyphs --runs_dir=runs/glyphs --distractors=1000000

Trains a dense 512-d encoder, encoders with the FLOPs and the l1 penalty at several weights, and one
with Sparse Deep Hashing; draws the images of the evaluation once; embeds them with every encoder;
then compares all methods of search and verifies pairs. The steps are those of `reproduce`, the
records go to <runs_dir>/records. Nothing else should run while search is timed.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.evaluation import identification, records
from sparse_embed.experiments.orchestration import plans, steps
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import (
    DISTRACTORS,
    ONLY,
    PAIR_COUNT,
    PROBE_CLASSES,
    TRAIN_FLAGS,
)
from sparse_embed.flags.train_config import ObjectiveConfig

_RUNS_DIR = flags.DEFINE_string("runs_dir", "runs/glyphs", "Folder for all results.")
_WEIGHTS = {
    "flops": flags.DEFINE_string("flops_weights", "15,30,60", "Weights of the FLOPs penalty."),
    "l1": flags.DEFINE_string("l1_weights", "0.4,0.6,0.8", "Weights of the l1 penalty."),
}


def parse(flag: flags.FlagHolder) -> list[float]:
    """Returns the weights that a flag lists."""
    try:
        return ObjectiveConfig(reg_path=flag.value).weights
    except ValueError as error:
        raise UsageError(
            f"--{flag.name}={flag.value}: expected increasing positive weights, such as 10,20,40"
        ) from error


def main() -> None:
    """Runs the steps."""
    weights = {method: parse(flag) for method, flag in _WEIGHTS.items()}
    runs_dir = app.writable_folder("runs_dir", _RUNS_DIR.value)
    sizes = (PROBE_CLASSES.value, DISTRACTORS.value, PAIR_COUNT.value)
    only = ",".join(ONLY.value)
    steps.run_all(plans.glyphs(runs_dir, weights, *sizes, TRAIN_FLAGS.value, only), runs_dir)
    print(identification.table(records.load(runs_dir / plans.RECORDS, "megaface")))


if __name__ == "__main__":
    app.run(main)
