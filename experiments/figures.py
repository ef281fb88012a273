"""Pictures, each drawn from result records and nothing else."""

import pathlib
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sparse_embed.common.files import atomic_path

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = {
    "exhaustive dense": "#000000",
    "sparse": "#0072B2",
    "sparse, re-ranked": "#D55E00",
}


def search_summary(records: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Draws recall@1 against cost, and how evenly the dimensions are used.

    Left: recall@1 on unseen classes against multiply-adds per row of the database. Right: the
    activation probability p_j of each dimension, highest first; its mean is where all of them
    would be if the sub-optimality ratio (section 5 of the paper) were 1.

    Args:
        records: what `search` wrote.
        path: picture to write; the suffix says which format.
    """
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    costs = [record["flops_per_row"] for record in records]
    recalls = [record["recall_at_1"] for record in records]
    for record, cost, recall in zip(records, costs, recalls, strict=True):
        colour = COLOURS[record["method"]]
        is_cheap = cost < np.sqrt(min(costs) * max(costs))  # in the left half of the picture
        left.plot(cost, recall, "o", markersize=9, color=colour)
        left.annotate(
            f"{record['method']}, d={record['dim']}\n{recall:.3f}",
            (cost, recall),
            xytext=(8 if is_cheap else -8, -4),
            textcoords="offset points",
            horizontalalignment="left" if is_cheap else "right",
            verticalalignment="top",
            color=colour,
        )
    left.set(
        xscale="log",
        xlim=(min(costs) / 2, max(costs) * 2),
        ylim=(min(recalls) - 0.03, max(recalls) + 0.01),
        xlabel="multiply-adds per row of the database",
        ylabel="recall@1, unseen classes",
        title="What a query costs and finds",
    )
    left.grid(alpha=0.3)
    sparse = next(record for record in records if "activation_probabilities" in record)
    probabilities = np.sort(sparse["activation_probabilities"])[::-1]
    dimensions = np.arange(1, len(probabilities) + 1)
    right.fill_between(dimensions, probabilities, color=COLOURS["sparse"], alpha=0.35, linewidth=0)
    right.plot(dimensions, probabilities, color=COLOURS["sparse"])
    mean = probabilities.mean()
    right.axhline(mean, color="black", linestyle="--", linewidth=1)
    right.annotate(f"mean {mean:.3f}", (len(dimensions), mean), ha="right", va="bottom")
    right.set(
        xlim=(1, len(dimensions)),
        ylim=(0, None),
        xlabel="dimension, most active first",
        ylabel="fraction of rows in which it is non-zero",
        title=f"Evenly sparse: sub-optimality ratio {sparse['suboptimality']:.2f}",
    )
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
