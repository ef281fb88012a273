"""Figure 2b: activation probabilities while F, the relaxed F and l1 are minimized; exact, no data.

Two activations are rectified Gaussians that start with the probabilities (0.4, 0.1); gradient
descent with infinitesimal steps minimizes each regularizer (see `losses.population`).
"""

import functools

import numpy as np
from matplotlib.figure import Figure

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import drawing
from sparse_embed.losses import population

CURVES = {  # regularizer: label, colour, line
    "flops": ("F", "#000000", "-"),
    "relaxed_flops": ("relaxed F", "#0072B2", "--"),
    "l1": ("l1", "#D55E00", "-."),
}


@functools.cache
def paths() -> dict[str, np.ndarray]:
    """Returns the probabilities (points, 2) along each path."""
    return {name: population.trajectory(name).probability for name in CURVES}


def second_probability(regularizer: str, first: float) -> float:
    """Returns p2 on the path of a regularizer where p1, which only falls, has reached `first`."""
    path = paths()[regularizer]
    return float(np.interp(-first, -path[:, 0], path[:, 1]))


def draw(records: list[Record]) -> Figure:
    """Draws the figure; it needs no record."""
    del records
    figure, ((axes,),) = drawing.new_figure(1)
    for name, (label, colour, line) in CURVES.items():
        axes.plot(*paths()[name].T, line, color=colour, label=label, linewidth=2)
    start = paths()["l1"][0]
    axes.plot(*start, "o", color="#000000")
    axes.annotate("start", start, xytext=(-8, 6), textcoords="offset points", ha="right")
    axes.plot([0, 0.1], [0, 0.1], ":", color="#7F7F7F", label="p₁ = p₂")
    axes.set(xlabel="p₁", ylabel="p₂", xlim=(0, 0.43), ylim=(0, 0.11))
    axes.legend(loc="lower right", frameon=False)
    return figure


def caption(records: list[Record]) -> str:
    """Describes the figure."""
    del records
    return (
        "Activation probabilities of two rectified Gaussians under gradient descent with "
        "infinitesimal steps from (0.40, 0.10), without a metric loss. Exact: integrated from the "
        "closed forms of the paper's appendix A; no data, no training run."
    )
