"""Tables of the report, which the button in a column's head sorts."""

import html
import math
from typing import Any

from sparse_embed.experiments.core.paper import PAPER, SERIES
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import (
    cifar100_rules,
    drawing,
    figures,
    judging,
    measures,
    search_rules,
    selection,
)
from sparse_embed.experiments.reporting.cifar100_table import in_table, numbers
from sparse_embed.experiments.reporting.intervals import Interval
from sparse_embed.experiments.reporting.selection import TIME, Group, NotMeasured

escape = html.escape

REGULARIZER_METRICS = ("flops_per_row", "recall_at_1", "suboptimality_ratio")
OUTCOMES = {
    judging.HELD: "FLOPs",
    judging.NOT_HELD: "l1",
    judging.UNDECIDED: "undecided",
}


def table(head: list[str], rows: list[list[Any]], caption: str) -> str:
    """Returns a table that the button in a column's head sorts.

    A cell is text, a number, or (number to sort by, text). None is an empty cell.
    """
    parts = [
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table class=sortable><caption>{escape(caption)}</caption><thead><tr>"
    ]
    parts += [
        f'<th scope=col aria-sort="none"><button type=button>{escape(name)}</button></th>'
        for name in head
    ]
    parts.append("</tr></thead><tbody>")
    for row in rows:
        cells = []
        for cell in row:
            value, text = cell if isinstance(cell, tuple) else (cell, cell)
            if cell is None:
                cells.append("<td></td>")
            elif isinstance(value, int | float):
                shown = f"{text:.4g}" if isinstance(text, float) else str(text)
                cells.append(f'<td class=number data-value="{value!r}">{escape(shown)}</td>')
            else:
                cells.append(f"<td>{escape(str(text))}</td>")
        parts.append(f"<tr>{''.join(cells)}</tr>")
    parts.append("</tbody></table></div>")
    return "".join(parts)


def identification(records: list[Record]) -> str:
    """Returns every setting of every method, each seed in its own row."""
    rows = [
        [
            record["architecture"],
            drawing.look(record["method"]).label,
            selection.setting(record),
            selection.seed(record),
            record["distractors"],
            "yes" if record["reranked"] else "no",
            round(record["recall_at_1"], 4),
            _ends(measures.recall(Group({selection.seed(record): record}))),
            record.get(TIME),
            record.get("flops_per_row"),
            record.get("activation_probability"),
            record.get("suboptimality_ratio"),
            (record["index_bytes"], f"{record['index_bytes'] / 2**20:.1f}"),
        ]
        for record in selection.select(records, experiment="megaface")
    ]
    head = ["architecture", "method", "setting", "seed", "distractors", "re-ranked", "recall@1"]
    head += ["95% interval", "ms per query", "multiply-adds per row", "activation probability"]
    head += ["sub-optimality", "index, MiB"]
    return table(head, rows, "Identification: every method and setting") if rows else ""


def regularizers(records: list[Record]) -> str:
    """Returns relaxed FLOPs against l1 at each wanted FLOPs per row, with a verdict."""
    try:
        shown = figures.regularizers.points(records)
    except NotMeasured:
        return ""
    rows: list[list[Any]] = []
    for architecture, part in selection.by_architecture(shown):
        for group in selection.select(part, method="flops"):
            setting = group["setting"]["target_flops"]
            theirs = selection.select(part, method="l1", reranked=group["reranked"])
            same = [other for other in theirs if other["setting"]["target_flops"] == setting]
            if not same:
                continue
            difference = search_rules.advantage([group], theirs, beyond=True)
            outcome = judging.apart(judging.above(difference), difference, "").outcome
            rows.append(
                [
                    architecture,
                    setting,
                    "yes" if group["reranked"] else "no",
                    *(side[key] for key in REGULARIZER_METRICS for side in (group, same[0])),
                    (difference.mean, f"{difference:+.4f}"),
                    OUTCOMES[outcome],
                ]
            )
    head = ["way of training", "wanted F", "re-ranked", "F of FLOPs", "F of l1"]
    head += ["recall@1 of FLOPs", "recall@1 of l1", "sub-optimality of FLOPs"]
    head += ["sub-optimality of l1", "FLOPs less l1 at equal F", "better"]
    return table(head, rows, "Relaxed FLOPs against l1 at equal cost") if rows else ""


def _ends(interval: Interval) -> str | None:
    """Returns an interval over classes of probes as a cell, None if it is not known."""
    if math.isnan(interval.low):
        return None
    return f"{interval.low:.4f} to {interval.high:.4f}"


def verification(records: list[Record]) -> str:
    """Returns accuracy and true positive rates of every encoder."""
    rows = [
        [
            record["architecture"],
            record["data"],
            drawing.look(record["method"]).label,
            record["setting"].get("weight"),
            selection.seed(record),
            record.get("activation_probability"),
            record["accuracy"],
            record["tar_at_far_0.01"],
            record["tar_at_far_0.001"],
        ]
        for record in selection.select(records, experiment="verification")
    ]
    head = ["architecture", "data", "method", "weight", "seed", "activation probability"]
    head += ["accuracy", "TPR at FPR 0.01", "TPR at FPR 0.001"]
    return table(head, rows, "Verification") if rows else ""


def cifar100(records: list[Record]) -> str:
    """Returns the paper's table and ours, and relaxed FLOPs against l1 at equal cost."""
    rows: list[list[Any]] = []
    for name, (title, paper) in PAPER.items():
        rows.append([title, "paper", *map(float, paper)])
        for series in SERIES:
            group = in_table(records, series, name) if name in series.rows else None
            if group is not None:
                by = f"{group.get('source', 'here')}, {series.network}"
                by += f", {measures.told_seeds(len(group.records))}"
                rows.append([title, by, *((n.mean, str(n)) for n in numbers(group))])
    head = ["model", "by", "multiply-adds per row", "train prec@4", "train prec@16"]
    head += ["test prec@4", "test prec@16"]
    caption = "CIFAR-100: precision in percent, without re-ranking; ± standard deviation over seeds"
    return table(head, rows, caption) + _cifar100_regularizers(records)


def _cifar100_regularizers(records: list[Record]) -> str:
    """Returns relaxed FLOPs less l1 at each wanted FLOPs per row, with a verdict."""
    rows: list[list[Any]] = []
    for series, target in cifar100_rules.compared(records):
        for metric in cifar100_rules.PRECISIONS:
            try:
                difference = cifar100_rules.advantage(records, series, metric, target)
            except NotMeasured:
                continue
            outcome = judging.apart(judging.above(difference), difference, "").outcome
            told = (100 * difference.mean, f"{difference:+.2%}")
            rows.append([series.network, target, metric, told, OUTCOMES[outcome]])
    head = ["model", "wanted F", "column", "FLOPs less l1 at equal F", "better"]
    return table(head, rows, "CIFAR-100: relaxed FLOPs against l1 at equal cost") if rows else ""
