"""Figure 2a: the distribution of trained activations and the rectified Gaussian nearest to it.

One row per architecture (see `evaluate_activations`) with three dimensions: one that is fitted
better than most, the median one and one that is fitted worse.
"""

import numpy as np
from matplotlib.figure import Figure

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import drawing, selection
from sparse_embed.losses.population import rectified_cdf


def points(records: list[Record]) -> list[Record]:
    """Returns the records shown, one per architecture, of its first seed."""
    found = selection.needed(records, "fitted activations", experiment="activations")
    found = sorted(found, key=selection.seed, reverse=True)  # the last one stays
    return list({record["architecture"]: record for record in found}.values())


def draw(records: list[Record]) -> Figure:
    """Draws both distribution functions of each dimension shown."""
    shown = points(records)
    columns = selection.arrays(shown[0])["activations"].shape[1]
    figure, axes = drawing.new_figure(columns, len(shown), width=3.3, height=2.8)
    for row, record in zip(axes, shown, strict=True):
        raw = selection.arrays(record)
        fitted = zip(row, raw["activations"].T, raw["shown"], strict=True)
        for axis, sample, (mu, sigma, distance) in fitted:
            x = np.linspace(0, sample.max(), 300)
            empirical = np.searchsorted(np.sort(sample), x, side="right") / len(sample)
            axis.plot(x, empirical, color="#D55E00", linewidth=2.5, label="activations")
            axis.plot(
                x, rectified_cdf(x, mu, sigma), "--", color="#0072B2", label="rectified Gaussian"
            )
            axis.set(
                title=f"{record['architecture']}, KS distance {distance:.4f}",
                xlabel="activation",
                ylabel="CDF",
                ylim=(min(empirical[0], 0.98) - 0.01, 1.002),
            )
            axis.title.set_fontsize(9)
    axes[0, 0].legend(loc="lower right", fontsize=8, frameon=False)
    return figure


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, its data, and when it was measured."""
    shown = points(records)
    texts = [
        f"{record['architecture']} ({record['setting']['activation']}, {record['method']}): "
        f"{record['dimensions']} dimensions on {record['images']:,} images of unseen classes "
        f"of {record['data']}"
        for record in shown
    ]
    return (
        "Distribution of activations before the unit norm, and the rectified Gaussian at the "
        f"least Kolmogorov-Smirnov distance. {'; '.join(texts)}. The axes start at the "
        f"probability of zero. {selection.origin(shown)}"
    )
