r"""Prints how fast training is, and how much time the pipeline and the callbacks take.

    python -m sparse_embed.experiments.benchmark_training --preset=glyphs_flops

Times these in turn, round by round, so that other load on the machine does not favour one of them:
- "training": `train` itself, with its data pipeline, curves, guards and checkpoints;
- "bare": the same network on one batch in memory, only forward, backward and update;
- "pytorch": the same in PyTorch (`--model=convnet` with arcface and flops, if torch is there).
The first round, in which TensorFlow compiles, does not count.
"""

import pathlib
import tempfile

from absl import flags

from sparse_embed.experiments.benchmarks.training_speed import measure, speed_of_training
from sparse_embed.experiments.evaluation import records
from sparse_embed.experiments.training.checks import check
from sparse_embed.flags import app
from sparse_embed.flags import training as train_flags
from sparse_embed.flags.output import OUTPUT
from sparse_embed.flags.train_config import LoggingConfig

train_flags.define()
_ROUNDS = flags.DEFINE_integer("rounds", 6, "Rounds to time.", lower_bound=1)
_ROUND_STEPS = flags.DEFINE_integer(
    "round_steps", LoggingConfig().summary_every, "Steps of each in a round.", lower_bound=1
)


def main() -> None:
    """Reads the flags, measures and prints."""
    config = train_flags.train_config()
    check(config)
    output = app.writable_file("output", OUTPUT.value, ".json") if OUTPUT.value else None
    with tempfile.TemporaryDirectory() as folder:
        found = measure(config, _ROUNDS.value, _ROUND_STEPS.value, pathlib.Path(folder))
    ratios = speed_of_training(found)
    for record in found:
        print(f"{record['method']:10}{record['images_per_second']:10,.0f} images per second")
    for name, ratio in ratios.items():
        print(f"training runs at {ratio:.2f} x the speed of {name}")
    if output:
        settings = {"speed_of_training": ratios, "flags": config.identity}
        records.save_all(output, found, settings=settings)


if __name__ == "__main__":
    app.run(main)
