r"""All figures and tables of the paper from one command, which `make reproduce` runs.

    make reproduce                      # quick: under a quarter of an hour on 2 cores, no data
    make reproduce PRESET=full          # the paper's sweeps on glyphs, a few hours
    make reproduce PRESET=paper         # faces: needs data folders and GPUs

Each step is one of the other scripts (see `orchestration.plans`); call again after an interruption
to continue. All results go to <run_dir>/<extent>, the report last.
"""

import pathlib
import sys

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.orchestration import plans, steps
from sparse_embed.experiments.reporting import page
from sparse_embed.flags import app
from sparse_embed.flags.output import RUN_DIR

_EXTENT = flags.DEFINE_enum("extent", "quick", ["quick", "full", "paper"], "How much to reproduce.")
_DATA_ROOT = flags.DEFINE_string("data_root", "data", "Folder of the data that paper needs.")


def check_paper_data(data: pathlib.Path) -> None:
    """Lists what is missing; UsageError if anything is."""
    missing = {path: what for path, what in plans.PAPER_DATA.items() if not (data / path).exists()}
    for path, what in missing.items():
        print(f"missing: {data / path} ({what})", file=sys.stderr)
    if missing:
        raise UsageError(
            f"--extent=paper: {len(missing)} of {len(plans.PAPER_DATA)} files or folders are "
            f"missing; put them there, or point --data_root={data} to their folder"
        )


def main() -> None:
    """Runs the steps of the chosen extent, then writes the report and prints its path."""
    data = pathlib.Path(_DATA_ROOT.value).expanduser()
    if _EXTENT.value == "paper":
        check_paper_data(data)
    run_dir = app.writable_folder("run_dir", str(pathlib.Path(RUN_DIR.value) / _EXTENT.value))
    if _EXTENT.value == "paper":
        plan = plans.paper(run_dir, data)
    else:
        plan = {"quick": plans.quick, "full": plans.full}[_EXTENT.value](run_dir)
    steps.run_all(plan, run_dir)
    print(page.write_and_tell(run_dir))


if __name__ == "__main__":
    app.run(main)
