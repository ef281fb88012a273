"""Figures of the search benchmark."""

import pathlib

import numpy as np
from search_speed import all_methods

from sparse_embed.common.files import atomic_path
from sparse_embed.common.looks import Look
from sparse_embed.experiments.core.records import Record


def draw_growth(records: list[Record], path: pathlib.Path) -> None:
    """Draws the time per query of exact methods against n * sum p_j^2, with a line of slope 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 4))
    work = np.array([record["rows"] * record["flops_per_row"] for record in records])
    for name in ("SparseIndex", "Algorithm1"):
        chosen = np.array([record["method"] == name for record in records])
        taken = np.array([record["milliseconds_per_query"] for record in records])
        axes.loglog(work[chosen], taken[chosen], "o", label=name)
    ends = np.array([work.min(), work.max()])
    axes.loglog(ends, ends * 2e-6, "--", color="grey", label="2 ns per multiply-add")
    axes.set_xlabel("multiply-adds per query, n \u00b7 \u03a3 p\u00b2")
    axes.set_ylabel("time per query, ms")
    axes.legend()
    figure.tight_layout()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)


def draw_against(records: list[Record], key: str, path: pathlib.Path) -> None:
    """Draws the time per query of every method against `key`, "k" or "rows": a line for each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name, row in all_methods().items():
        points = sorted(
            (record[key], record["milliseconds_per_query"])
            for record in records
            if record["method"] == name
        )
        if points:
            look: Look = row.look
            axes.loglog(
                *zip(*points, strict=True), color=look.colour, marker=look.marker, label=look.label
            )
    axes.set_xlabel({"k": "results per query, k", "rows": "rows"}[key])
    axes.set_ylabel("time per query, ms")
    axes.legend(fontsize="small")
    figure.tight_layout()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)
