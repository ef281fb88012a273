r"""The report of a reproduction: one HTML file that opens from disk and needs no network.

    python -m sparse_embed.experiments.report --run_dir=runs/reproduce/quick

Draws every figure from the records in --run_dir, compares the paper's claims with them (see
`reporting.claims`) and writes `report.html`, `claims.json` and the figures there. If --run_dir has
no records of CIFAR-100, its claims are judged on the recorded results, and marked so. --publish
also writes the run as a study, two files from which the same report can be made again; not from a
checkout with uncommitted changes, which no revision names.
"""

import pathlib

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.common.provenance import provenance
from sparse_embed.experiments.reporting import page
from sparse_embed.experiments.reporting.selection import recorded
from sparse_embed.flags import app
from sparse_embed.flags.output import RUN_DIR

_PUBLISH = flags.DEFINE_string("publish", None, "Folder for the run as a study; optional.")
_CIFAR100 = flags.DEFINE_string(
    "cifar100_results",
    str(recorded("cifar100")),
    "Folder of recorded results of CIFAR-100, for a run without its own.",
)


def main() -> None:
    """Reads the flags, writes the report, prints its path."""
    run_dir = app.existing_path("run_dir", RUN_DIR.value)
    publish = app.writable_folder("publish", _PUBLISH.value) if _PUBLISH.value else None
    revision = provenance()["revision"] or ""
    if publish and revision.endswith("-dirty"):
        raise UsageError(f"--publish={publish}: the checkout has uncommitted changes ({revision})")
    print(page.write_and_tell(run_dir, pathlib.Path(_CIFAR100.value)))
    if publish:
        page.publish(run_dir, publish)


if __name__ == "__main__":
    app.run(main)
