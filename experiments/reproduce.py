r"""All figures and tables of the paper from one command, which `make reproduce` runs.

    make reproduce                      # quick: under a quarter of an hour on 2 cores, no data
    make reproduce PRESET=full          # two networks, three seeds, a million words: hours
    make reproduce PRESET=rehearsal     # every step of paper in half an hour: needs data folders
    make reproduce PRESET=paper         # faces: needs data folders and GPUs

Each step is one of the other scripts (see `orchestration.plans` and `orchestration.paper_plan`);
call again after an interruption to continue. All results go to <run_dir>/<extent>, the report last.
A rehearsal ends with an estimate of how long paper takes on the same machine.
"""

import dataclasses
import pathlib
import sys

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import user_path
from sparse_embed.experiments.core import notes
from sparse_embed.experiments.orchestration import estimate, paper_plan, paper_size, plans, steps
from sparse_embed.experiments.reporting import page
from sparse_embed.flags import app
from sparse_embed.flags.evaluation import TRAIN_FLAGS
from sparse_embed.flags.output import RUN_DIR

WORDS = {"quick": plans.quick, "full": plans.full}
FACES = {"rehearsal": paper_size.REHEARSAL, "paper": paper_size.WHOLE}

_EXTENT = flags.DEFINE_enum("extent", "quick", [*WORDS, *FACES], "How much to reproduce.")
_DATA_ROOT = flags.DEFINE_string(
    "data_root", "data", "Folder of the data that paper and rehearsal need."
)
_CIFAR100 = flags.DEFINE_string(
    "cifar100", None, "CIFAR-100, archive or folder, if it is not in --data_root."
)
_FIRST_SEED = flags.DEFINE_integer(
    "first_seed",
    0,
    "First of the three seeds that quick and full train with; another one needs another --run_dir.",
    lower_bound=0,
)
_LAMBDAS = flags.DEFINE_integer(
    "lambdas",
    None,
    "How many weights of each regularizer paper and rehearsal train, the smallest ones; by default "
    "paper all, rehearsal 1.",
    lower_bound=1,
)


def find_data() -> paper_plan.Data:
    """Returns where the data is; lists what is missing, and then UsageError."""
    root = user_path("data_root", _DATA_ROOT.value, "a folder")
    given = user_path("cifar100", _CIFAR100.value, "a file") if _CIFAR100.value else None
    data, missing = paper_plan.find_data(root, given)
    for path, what in missing.items():
        print(f"missing: {path} ({what})", file=sys.stderr)
    if missing:
        raise UsageError(
            f"--extent={_EXTENT.value}: {len(missing)} of {len(paper_plan.FILES)} files or folders "
            f"are missing; put them there, or point --data_root={root} to their folder"
        )
    return data


def main() -> None:
    """Runs the steps of the chosen extent, then writes the report and prints its path."""
    extent = _EXTENT.value
    if extent in WORDS:
        for flag in (_CIFAR100, TRAIN_FLAGS, _LAMBDAS):
            if flag.present:
                raise UsageError(f"--{flag.name} needs --extent=paper or rehearsal")
        run_dir = app.writable_folder("run_dir", str(pathlib.Path(RUN_DIR.value) / extent))
        steps.run_all(WORDS[extent](run_dir, _FIRST_SEED.value), run_dir)
    else:
        if _FIRST_SEED.present:
            raise UsageError("--first_seed needs --extent=quick or full")
        data, size = find_data(), FACES[extent]
        if _LAMBDAS.value is not None:
            size = dataclasses.replace(size, lambdas=_LAMBDAS.value)
        size = dataclasses.replace(size, train_flags=tuple(TRAIN_FLAGS.value))
        run_dir = app.writable_folder("run_dir", str(pathlib.Path(RUN_DIR.value) / extent))
        plan = paper_plan.paper(run_dir, data, size)
        if extent == "rehearsal":
            notes.write_estimate(run_dir, [])
        steps.run_all(plan, run_dir)
        if extent == "rehearsal":
            rows = estimate.estimate(plan, paper_plan.paper(run_dir, data))
            notes.write_estimate(run_dir, rows)
            print(estimate.told(rows))
    print(page.write_and_tell(run_dir))


if __name__ == "__main__":
    app.run(main)
