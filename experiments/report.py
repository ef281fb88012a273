r"""The report of a reproduction: one HTML file that opens from disk and needs no network.

    python -m sparse_embed.experiments.report --run_dir=runs/reproduce/quick
    python -m sparse_embed.experiments.report --run_dir=results/full --figures=tradeoff,roc
    python -m sparse_embed.experiments.report --run_dir=results/cifar100 --table=cifar100

Draws every figure from the records in --run_dir, compares the paper's claims with them (see
`reporting.claims`) and writes `report.html`, `claims.json` and the figures there. If --run_dir has
no records of CIFAR-100, its claims are judged on the recorded results, and marked so. --publish
also writes the run as a study, two files from which the same report can be made again; not from a
checkout with uncommitted changes, which no revision names.

--figures only draws some figures, as SVG, PDF and PNG (--figures=all: all that have records), and
--table only prints a table.
"""

import pathlib

from sparse_embed.common.failures import UsageError
from sparse_embed.common.provenance import provenance
from sparse_embed.experiments.reporting import cifar100_table, drawing, page, selection
from sparse_embed.experiments.reporting.figures import FIGURES
from sparse_embed.flags import app
from sparse_embed.flags.options.report import Options


def main(options: Options) -> None:
    """Writes the report and prints its path, or draws or prints what is asked for alone."""
    run_dir = app.existing_path("run_dir", options.run_dir)
    if options.table:
        print(cifar100_table.table(selection.load(run_dir)))
    if options.figures:
        _draw(run_dir, options.figures)
    if options.table or options.figures:
        return
    publish = app.writable_folder("publish", options.publish) if options.publish else None
    revision = provenance()["revision"] or ""
    if publish and revision.endswith("-dirty"):
        raise UsageError(f"--publish={publish}: the checkout has uncommitted changes ({revision})")
    others = pathlib.Path(options.cifar100_results) if options.cifar100_results else None
    print(page.write_and_tell(run_dir, others))
    if publish:
        page.publish(run_dir, publish)


def _draw(run_dir: pathlib.Path, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in FIGURES and names != ("all",):
            raise UsageError(f"--figures={name}: expected some of {', '.join(FIGURES)}, or all")
    records = selection.load(run_dir)
    for name in FIGURES if names == ("all",) else names:
        module = FIGURES[name].module
        try:
            written = drawing.save(module.draw(records), run_dir / page.PICTURES / name)
            print(*written, module.caption(records), sep="\n")
        except selection.NotMeasured as reason:
            if names != ("all",):
                raise UsageError(f"--figures={name} --run_dir={run_dir}: {reason}") from reason
            print(f"{name}: not drawn, {reason}")


if __name__ == "__main__":
    app.run(main, Options)
