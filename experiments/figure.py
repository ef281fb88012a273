r"""Draws figures of the paper from the records of a reproduction, as SVG, PDF and PNG.

    python -m sparse_embed.experiments.figure --run_dir=runs/reproduce/quick
    python -m sparse_embed.experiments.figure --run_dir=results/full --figures=tradeoff,roc

They are the figures of the report; without --figures, it draws all that have records.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.reporting import drawing, page, selection
from sparse_embed.experiments.reporting.figures import FIGURES
from sparse_embed.flags import app
from sparse_embed.flags.output import RUN_DIR

_FIGURES = flags.DEFINE_list("figures", [], "Which figures; empty for all.")


def main() -> None:
    """Reads the flags, draws, and prints the files written."""
    run_dir = app.existing_path("run_dir", RUN_DIR.value)
    for name in _FIGURES.value:
        if name not in FIGURES:
            raise UsageError(f"--figures={name}: expected some of {', '.join(FIGURES)}")
    records = selection.load(run_dir)
    for name in _FIGURES.value or FIGURES:
        module = FIGURES[name].module
        try:
            written = drawing.save(module.draw(records), run_dir / page.PICTURES / name)
            print(*written, module.caption(records), sep="\n")
        except selection.NotMeasured as reason:
            if _FIGURES.value:
                raise UsageError(f"--figures={name} --run_dir={run_dir}: {reason}") from reason
            print(f"{name}: not drawn, {reason}")


if __name__ == "__main__":
    app.run(main)
