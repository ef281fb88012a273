"""The whole comparison with one network, from training to records.

    python -m sparse_embed.experiments.compare --runs_dir=runs/words --distractors=1000000

Draws the images of the evaluation once. Trains a dense 512-d and a dense 128-d encoder, encoders
with the FLOPs and the l1 penalty at several weights, and one with Sparse Deep Hashing; embeds the
images with every encoder; then compares all methods of search and verifies pairs. The steps are
those of `reproduce`, and finished ones are not repeated; the records go to <runs_dir>/records.
Nothing else should run while search is timed.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.evaluation import identification
from sparse_embed.experiments.orchestration import makers, plans, steps
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import (
    DISTRACTORS,
    DRAWN,
    ONLY,
    PAIR_COUNT,
    PROBE_CLASSES,
    TRAIN_FLAGS,
)
from sparse_embed.flags.train_config import ObjectiveConfig

_RUNS_DIR = flags.DEFINE_string("runs_dir", "runs/words", "Folder for all results.")
_STEPS = {
    "start": flags.DEFINE_integer(
        "start_steps", 500, "Training steps of the run that all encoders start from.", lower_bound=1
    ),
    "encoder": flags.DEFINE_integer(
        "encoder_steps", 500, "Training steps of each encoder after that.", lower_bound=1
    ),
}
_SEEDS = flags.DEFINE_integer("seeds", 1, "How many times each is trained.", lower_bound=1)
_WEIGHTS = {
    "flops": flags.DEFINE_string("flops_weights", "30,100", "Weights of the FLOPs penalty."),
    "l1": flags.DEFINE_string("l1_weights", "0.6,1.2", "Weights of the l1 penalty."),
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
    sizes = makers.Sizes(
        DRAWN.value,
        PROBE_CLASSES.value,
        DISTRACTORS.value,
        PAIR_COUNT.value,
        tuple(range(_SEEDS.value)),
    )
    network = makers.Network((), (), weights, plans.CONVNET.seconds)
    drawn = makers.draw(runs_dir / "images", sizes)
    found = [drawn]
    for seed in sizes.seeds:
        found += plans.compare(
            runs_dir,
            seed,
            network,
            sizes,
            drawn,
            (_STEPS["start"].value, _STEPS["encoder"].value),
            ",".join(ONLY.value),
            TRAIN_FLAGS.value,
        )
    steps.run_all(found, runs_dir)
    print(identification.table(records.load(runs_dir / makers.RECORDS, "megaface")))


if __name__ == "__main__":
    app.run(main)
