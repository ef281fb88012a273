"""How figures look: style, colours and markers of methods, panels, files."""

import dataclasses
import io
import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from matplotlib.figure import Figure

from sparse_embed.common.files import atomic_path
from sparse_embed.common.looks import Look
from sparse_embed.experiments.core.records import trained_method
from sparse_embed.experiments.reporting.intervals import Interval
from sparse_embed.experiments.reporting.selection import Item, by_architecture
from sparse_embed.losses import REGULARIZERS
from sparse_embed.retrieval import BASELINES

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it reports each table of each font

FORMATS = ("svg", "pdf", "png")
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",  # text stays text: small files, and it can be searched
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
}


OTHER_LOOKS = {
    "flops_cut": Look("relaxed FLOPs, largest values only", "#003F63", "8"),
    "l1_cut": Look("l1, largest values only", "#8C3D00", "d"),
    "sdh": Look("SDH", "#CC79A7", "X"),
    "sparse": Look("sparse", "#999933", "p"),
}


def look(method: str) -> Look:
    """Returns how a method is shown; one that is in no table gets its own name, in grey.

    Encoders that were cut look as they do whole where they have no look of their own.
    """
    if method in REGULARIZERS:
        return REGULARIZERS[method].look
    if method in BASELINES:
        return BASELINES[method].look
    if method in OTHER_LOOKS:
        return OTHER_LOOKS[method]
    trained = trained_method(method)
    if trained != method and (trained in REGULARIZERS or trained in OTHER_LOOKS):
        whole = look(trained)
        return dataclasses.replace(whole, label=f"{whole.label}, largest values only")
    return Look(method, "#7F7F7F", "h")


def methods(records: Sequence[Item]) -> Iterator[tuple[str, Look]]:
    """Yields the methods of some records and their looks, in the order of legends."""
    order = [*REGULARIZERS, *OTHER_LOOKS, *BASELINES]
    found = {record["method"] for record in records}
    for method in [name for name in order if name in found] + sorted(found - set(order)):
        yield method, look(method)


def new_figure(
    columns: int, rows: int = 1, width: float = 4.6, height: float = 3.6
) -> tuple[Figure, Any]:
    """Returns a figure and its axes, (rows, columns), in our style."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def panels(shown: Sequence[Item], **size: Any) -> tuple[Figure, list[tuple[Any, list[Item]]]]:
    """Returns a figure with one panel per architecture, and the titled axis and records of each."""
    parts = list(by_architecture(shown))
    figure, axes = new_figure(len(parts), **size)
    for axis, (architecture, _) in zip(axes[0], parts, strict=True):
        axis.set_title(architecture)
    return figure, [(axis, part) for axis, (_, part) in zip(axes[0], parts, strict=True)]


def plot(axis: Any, curve: Sequence[Item], x: str, y: str, line: str, **look: Any) -> None:
    """Draws one value of some records against another, in their order."""
    axis.plot([record[x] for record in curve], [record[y] for record in curve], line, **look)


def bars(axis: Any, x: list[float], found: list[Interval], colour: str) -> None:
    """Draws intervals as bars; those that are not known are left out."""
    ends = [
        [interval.mean - interval.low for interval in found],
        [interval.high - interval.mean for interval in found],
    ]
    axis.errorbar(
        x,
        [interval.mean for interval in found],
        np.maximum(ends, 0),  # an interval of resamples need not hold its mean
        fmt="none",
        ecolor=colour,
        elinewidth=0.8,
        capsize=2,
    )


def band(axis: Any, x: list[float], found: list[Interval], colour: Any) -> None:
    """Draws intervals as a band along a curve."""
    lows, highs = ([getattr(interval, end) for interval in found] for end in ("low", "high"))
    axis.fill_between(x, lows, highs, color=colour, alpha=0.15, linewidth=0)


def shade(colour: str, darkness: float) -> Any:
    """Returns a colour mixed with white; darkness 1 leaves it as it is."""
    return 1 - (1 - np.array(matplotlib.colors.to_rgb(colour))) * (0.4 + 0.6 * darkness)


def logarithmic(axis: Any) -> None:
    """Makes the horizontal axis logarithmic, with plain numbers that do not run into each other."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axis.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def legend_below(figure: Figure, axis: Any) -> None:
    """Puts the legend of one panel below all of them, where it hides nothing."""
    handles, labels = axis.get_legend_handles_labels()
    inches = 0.4 + 0.06 * max(map(len, labels), default=0)  # of a column, about
    ncols = max(1, min(4, int(figure.get_figwidth() / inches)))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=ncols, fontsize=8, frameon=False
    )


def save(figure: Figure, path: pathlib.Path) -> list[pathlib.Path]:
    """Writes a figure as SVG, PDF and PNG; a suffix of `path` is ignored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    # The salt makes the ids of each SVG unique, so that one page can hold several.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": path.stem}):
        for suffix in FORMATS:
            written.append(path.parent / f"{path.stem}.{suffix}")
            dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # same data, same file
            picture = io.BytesIO()  # on a full disk matplotlib would fail in words of its own
            figure.savefig(
                picture, format=suffix, transparent=suffix != "png", metadata=dated.get(suffix)
            )
            with atomic_path(written[-1]) as temporary:
                temporary.write_bytes(picture.getbuffer())
    return written
