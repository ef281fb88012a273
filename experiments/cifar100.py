"""The paper's table of CIFAR-100 (appendix "Cifar-100 results"), with our results beside it.

    python -m sparse_embed.experiments.cifar100 --data_dir=cifar-100-python.tar.gz
    python -m sparse_embed.experiments.cifar100 --report_only

Trains the models that are not in --run_dir yet, each by its preset `cifar100_<name>`: those within
a CPU's reach, `fast_*`, or those that --only names. Evaluates them on the test images, writes a
record of every encoder to <run_dir>/cifar100/records, and prints the table from those records:
where a model has several encoders, validation images choose one, within the paper's F. Flags of
`train` given here go to every training run. A run that was stopped resumes from its last checkpoint
when the script is called again.
"""

import dataclasses

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core.paper import FAST, SERIES, SOFT
from sparse_embed.experiments.orchestration import cifar100_plan, paper_size, steps
from sparse_embed.experiments.reporting import selection
from sparse_embed.experiments.reporting.cifar100_table import table
from sparse_embed.flags import app
from sparse_embed.flags import training as train_flags
from sparse_embed.flags.config import given
from sparse_embed.flags.evaluation import ONLY
from sparse_embed.flags.output import RUN_DIR

train_flags.define()
_RESULTS = flags.DEFINE_string(
    "results", str(selection.recorded("cifar100")), "Folder of recorded results, for --report_only."
)
_REPORT_ONLY = flags.DEFINE_bool("report_only", False, "Only print the table of --results.")


def main() -> None:
    """Trains and evaluates the missing models, and prints the table."""
    if _REPORT_ONLY.value:
        print(table(selection.load(app.existing_path("results", _RESULTS.value))))
        return
    data_dir = app.existing_path("data_dir", flags.FLAGS.data_dir)
    run_dir = app.writable_folder("run_dir", RUN_DIR.value)
    known = [name for series in SERIES for name in series.models]
    for name in ONLY.value:
        if name not in known:
            raise UsageError(f"--only={name}: expected some of {', '.join(known)}")
    more = [flag for flag in given(*train_flags.all_configs()) if "--data_dir=" not in flag]
    folder = app.writable_folder("run_dir", str(run_dir / "cifar100"))
    size = dataclasses.replace(paper_size.WHOLE, train_flags=tuple(more))
    plan = cifar100_plan.cifar100(folder, data_dir, ONLY.value or FAST.models + SOFT.models, size)
    steps.run_all(plan, folder)
    print(table(selection.load(folder)))


if __name__ == "__main__":
    app.run(main)
