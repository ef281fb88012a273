"""One encoder, every budget: rows cut to their largest values, against training at each weight.

An encoder whose rows and queries keep their largest values alone has a lower F, without training it
again. Its dashed curve ends at the encoder as it was trained.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from sparse_embed.experiments.core.records import Record, is_cut, trained_method
from sparse_embed.experiments.reporting import drawing, measures, selection
from sparse_embed.experiments.reporting.figures.tradeoff import describe
from sparse_embed.experiments.reporting.selection import Group, Item, NotMeasured

ROWS = ((False, "sparse alone"), (True, "re-ranked"))
BUDGET = ("keep", "keep_queries")
COMPARED = ("flops", "l1")  # shown as they were trained, even if the encoders of one were not cut


def points(records: list[Record]) -> list[Group]:
    """Returns the groups shown, by rising cost."""
    found = selection.select(records, experiment="megaface")
    cut = list(filter(is_cut, found))
    if not cut:
        raise NotMeasured("this run has no record of rows cut to their largest values")
    trained = {*COMPARED, *map(_trained, cut)}
    kept = [record for record in found if _trained(record) in trained]
    shown = selection.most_seeds(kept, *selection.values(cut, "method"))
    return sorted(selection.groups(shown), key=lambda group: group["flops_per_row"])


def _trained(record: Item) -> str:
    """Returns the method of the encoder, cut or not."""
    return trained_method(record["method"]) if is_cut(record) else record["method"]


def draw(records: list[Record]) -> Figure:
    """Draws solid curves of encoders trained at each weight, dashed ones of encoders cut."""
    shown = points(records)
    architectures = selection.values(shown, "architecture")
    figure, axes = drawing.new_figure(len(architectures), len(ROWS))
    for row, (reranked, word) in zip(axes, ROWS, strict=True):
        for axis, architecture in zip(row, architectures, strict=True):
            part = selection.select(shown, architecture=architecture, reranked=reranked)
            for method, look in drawing.methods([{"method": _trained(group)} for group in part]):
                same = [group for group in part if _trained(group) == method]
                trained = [group for group in same if not is_cut(group)]
                _draw_curve(axis, trained, f"-{look.marker}", look.colour, look.label)
                cut = list(filter(is_cut, same))
                trained_at = sorted({_trained_at(group["setting"]) for group in cut})
                for encoder, fewer, curve in _curves(cut):
                    ends = [group for group in trained if group["setting"] == encoder]
                    name, value = place = _trained_at(encoder)
                    darkness = (trained_at.index(place) + 1) / len(trained_at)
                    label = f"{look.label}, largest values of {name} {value:g}"
                    line = "--."
                    if fewer:
                        label, line = f"{label}, queries cut apart", ":."
                    colour = drawing.shade(look.colour, darkness)
                    _draw_curve(axis, [*curve, *ends], line, colour, label)
            drawing.logarithmic(axis)
            axis.set(
                title=f"{architecture}, {word}", xlabel="multiply-adds per row", ylabel="recall@1"
            )
    drawing.legend_below(figure, axes[0][0])
    return figure


def _trained_at(setting: dict[str, Any]) -> tuple[str, float]:
    """Returns what tells an encoder from others of its method, such as "weight", and its value."""
    for key, name in (("weight", "weight"), ("target_flops", "F")):
        if key in setting:
            return name, setting[key]
    return "dims", setting["dims"]  # of an encoder without a regularizer


def _curves(cut: list[Group]) -> Iterator[tuple[dict[str, Any], bool, list[Group]]]:
    """Yields an encoder's setting, whether queries had a budget apart, and groups."""

    def encoder(group: Group) -> dict[str, Any]:
        return {key: value for key, value in group["setting"].items() if key not in BUDGET}

    def order(group: Group) -> tuple[tuple[str, float], str, bool]:
        setting = group["setting"]
        return _trained_at(setting), str(encoder(group)), "keep_queries" in setting

    for (_, _, fewer), part in itertools.groupby(sorted(cut, key=order), order):
        curve = list(part)
        yield encoder(curve[0]), fewer, curve


def _draw_curve(axis: Any, curve: list[Group], line: str, colour: Any, label: str) -> None:
    """Draws recall@1 against cost, with a band."""
    if curve:
        drawing.plot(
            axis, curve, "flops_per_row", "recall_at_1", line, color=colour, label=label, ms=5
        )
        costs = [group["flops_per_row"] for group in curve]
        drawing.band(axis, costs, [measures.recall(group) for group in curve], colour)


def caption(records: list[Record]) -> str:
    """Describes the figure: its content, its data, and when it was measured."""
    shown = points(records)
    return (
        "Recall@1 against multiply-adds per row. Solid: one encoder trained at each weight. "
        "Dashed: one encoder whose rows and queries keep their largest values alone, the lighter "
        "the smaller its weight; dotted if queries keep another number than rows. "
        f"{describe(shown)} Points are means over seeds, bands 95% "
        "intervals over seeds and classes of probes. "
        f"{selection.origin(selection.records_of(*shown))}"
    )
