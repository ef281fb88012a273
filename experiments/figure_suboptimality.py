"""Figures 3b and 3d: sub-optimality ratio against sparsity, one panel per architecture.

    python -m sparse_embed.experiments.figure_suboptimality --run_dir=runs/reproduce/quick

R_sub = F / (d p^2), where p is the mean activation probability: 1 if the non-zeros are spread
evenly over the dimensions, more if not (section 5).
"""

from matplotlib.figure import Figure

from sparse_embed.experiments import figures
from sparse_embed.experiments.figure_tradeoff import describe
from sparse_embed.experiments.figures import LOOKS
from sparse_embed.experiments.records import Record
from sparse_embed.flags import app

NAME = "suboptimality"


def points(run: list[Record]) -> list[Record]:
    """Returns the records shown, by rising activation probability."""
    found = figures.sparse_identification(run, reranked=False)
    return sorted(found, key=lambda record: record["activation_probability"])


def draw(run: list[Record]) -> Figure:
    """Draws a curve for each regularizer, a point for each weight."""
    shown = points(run)
    figure, panels = figures.panels(shown)
    for axis, part in panels:
        for method in figures.values(shown, "method"):
            curve = figures.select(part, method=method)
            look = LOOKS[method]
            figures.plot(
                axis,
                curve,
                "activation_probability",
                "suboptimality_ratio",
                "-" + look.marker,
                color=look.colour,
                label=look.label,
            )
        axis.axhline(1, color="#7F7F7F", linestyle=":", label="evenly spread")
        axis.set(
            xlabel="mean activation probability (sparser to the left)",
            ylabel="sub-optimality ratio",
        )
        axis.locator_params(axis="x", nbins=5)
    figures.legend_below(figure, panels[0][0])
    return figure


def caption(run: list[Record]) -> str:
    """Says what is shown, on what data and by which run."""
    shown = points(run)
    return (
        "Sub-optimality ratio F / (d p²) of the embeddings that are searched, against their mean "
        f"activation probability p; 1 is the best possible. {describe(shown)} "
        f"{figures.origin(shown)}"
    )


main = figures.main_of(NAME, draw, caption)

if __name__ == "__main__":
    app.run(main)
