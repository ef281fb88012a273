"""Appendix "Cifar-100 results": precision against multiply-adds per row, every weight tried.

    python -m sparse_embed.experiments.figure_cifar100 --run_dir=results/cifar100

The paper's table has one point of each curve; both are drawn from the records of `cifar100`.
"""

from matplotlib.figure import Figure

from sparse_embed.experiments import cifar100, figures
from sparse_embed.experiments.figures import LOOKS
from sparse_embed.experiments.records import Record
from sparse_embed.flags import app

NAME = "cifar100"
MODELS = {"fast_flops": "flops", "fast_l1": "l1"}
PANELS = {
    "precision_at_4_train": "test images among the training images",
    "precision_at_4_test": "test images among each other",
}


def points(run: list[Record]) -> list[Record]:
    """Returns the records shown, by rising cost."""
    found = figures.needed(run, "CIFAR-100 at several weights", experiment="cifar100 path")
    return sorted(found, key=lambda record: record["flops_per_row"])


def draw(run: list[Record]) -> Figure:
    """Draws a curve for each regularizer; what stands in the table is larger, the paper hollow."""
    shown = points(run)
    figure, axes = figures.new_figure(len(PANELS))
    for axis, (key, title) in zip(axes[0], PANELS.items(), strict=True):
        for name, method in MODELS.items():
            look = LOOKS[method]
            costs, precisions = (
                [record[column] for record in figures.select(shown, name=name)]
                for column in ("flops_per_row", key)
            )
            percent = [100 * precision for precision in precisions]
            axis.plot(costs, percent, "-" + look.marker, color=look.colour, label=look.label)
            for record in figures.select(run, experiment="cifar100", name=name):
                place = record["flops_per_row"], 100 * record[key]
                axis.plot(*place, look.marker, color=look.colour, markersize=11)
            row, numbers = cifar100.PAPER[name]
            paper = dict(zip(cifar100.FIGURES, numbers, strict=True))
            place = paper["flops_per_row"], paper[key]
            hollow = {"color": look.colour, "markerfacecolor": "none", "markersize": 11}
            axis.plot(*place, look.marker, **hollow, label=f"{row}, paper")
        axis.set(title=title, xlabel="multiply-adds per row", ylabel="precision@4, percent")
    figures.legend_below(figure, axes[0][0])
    return figure


def caption(run: list[Record]) -> str:
    """Says what is shown and by which run."""
    return (
        "Precision of the four nearest images without re-ranking, d = 64, against multiply-adds "
        "per row; upper left is better. Each curve is one training with rising weights of its "
        "penalty. Large points stand in the table, chosen on validation images within the paper's "
        f"cost; hollow ones are the paper's. {figures.origin(points(run))}"
    )


main = figures.main_of(NAME, draw, caption, cifar100.load_results)

if __name__ == "__main__":
    app.run(main)
