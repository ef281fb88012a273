"""The report of a reproduction: one HTML file that opens from disk and needs no network."""

import base64
import dataclasses
import html
import io
import itertools
import json
import pathlib
import re
import shutil
import string
from typing import Any

import numpy as np

from sparse_embed.common.files import atomic_path
from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.orchestration.steps import STEPS
from sparse_embed.experiments.reporting import claims, drawing, selection
from sparse_embed.experiments.reporting.cifar100_table import PAPER, in_table, numbers
from sparse_embed.experiments.reporting.figures import FIGURES, Entry, tradeoff
from sparse_embed.experiments.reporting.selection import NotMeasured, recorded

REPORT, CLAIMS, PICTURES = "report.html", "claims.json", "figures"
TEMPLATE = pathlib.Path(__file__).with_name("page.html")

escape = html.escape


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


def inline_svg(path: pathlib.Path, description: str) -> str:
    """Returns an SVG file as part of a page: black takes the colour of the page's text."""
    text = path.read_text()
    text = text[text.index("<svg") :].replace("#000000", "currentColor")
    text = re.sub(r' id="[a-z]+\w*_\d+"', "", text)  # names of groups, the same in every figure
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def verdict_badge(verdict: claims.Verdict) -> str:
    """Returns the verdict as a coloured word with a sign."""
    sign = {True: "✓", False: "✗", None: "?"}[verdict.held]
    kind = verdict.word.replace(" ", "-")
    return f'<span class="badge {kind}">{sign} {verdict.word}</span>'


def figure_section(
    name: str,
    entry: Entry,
    records: list[Record],
    found: list[claims.Verdict],
    folder: pathlib.Path,
) -> str:
    """Draws one figure and puts the claims about it beside it."""
    try:
        drawing.save(entry.module.draw(records), folder / name)
        caption = entry.module.caption(records)
        links = ", ".join(
            f'<a href="{PICTURES}/{name}.{suffix}">{suffix.upper()}</a>'
            for suffix in drawing.FORMATS
        )
        picture = (
            f"{inline_svg(folder / f'{name}.svg', entry.title)}"
            f"<figcaption>{escape(caption)} Beside this file: {links}.</figcaption>"
        )
    except NotMeasured as reason:
        picture = f"<p class=absent>Not drawn: {escape(str(reason))}.</p>"
    return (
        f'<section id="{name}"><h2>{escape(entry.title)}</h2><div class=beside>'
        f"<figure>{picture}</figure>{claim_list(found, name)}</div></section>"
    )


def told(verdict: claims.Verdict) -> str:
    """Returns the numbers of a verdict, and their source if it is not this reproduction."""
    if verdict.source is None:
        return verdict.numbers
    return f"Recorded earlier, in {verdict.source}: {verdict.numbers}"


def claim_list(found: list[claims.Verdict], figure: str) -> str:
    """Returns the claims about one figure with their verdicts."""
    items = [
        f"<li>{verdict_badge(verdict)} <q>{escape(verdict.claim)}</q>"
        f"<p>{escape(told(verdict))}</p></li>"
        for verdict in found
        if verdict.figure == figure
    ]
    return f"<ul class=claims>{''.join(items)}</ul>"


def setting(record: Record) -> str:
    """Returns the numbers of a record's setting as text."""
    pairs = record["setting"].items()
    return ", ".join(f"{k}={v:g}" for k, v in pairs if isinstance(v, int | float))


def identification_table(records: list[Record]) -> str:
    """Returns every setting of every method."""
    rows = [
        [
            record["architecture"],
            drawing.look(record["method"]).label,
            setting(record),
            "yes" if record["reranked"] else "no",
            round(record["recall_at_1"], 4),
            record["milliseconds_per_query"],
            record.get("flops_per_row"),
            record.get("activation_probability"),
            record.get("suboptimality_ratio"),
            (record["index_bytes"], f"{record['index_bytes'] / 2**20:.1f}"),
        ]
        for record in selection.select(records, experiment="megaface")
    ]
    head = ["architecture", "method", "setting", "re-ranked", "recall@1", "ms per query"]
    head += ["multiply-adds per row", "activation probability", "sub-optimality", "index, MiB"]
    return table(head, rows, "Identification: every method and setting") if rows else ""


def verification_table(records: list[Record]) -> str:
    """Returns accuracy and true positive rates of every encoder."""
    rows = [
        [
            record["architecture"],
            record["data"],
            drawing.look(record["method"]).label,
            record["setting"].get("weight"),
            record.get("activation_probability"),
            record["accuracy"],
            record["tar_at_far_0.01"],
            record["tar_at_far_0.001"],
        ]
        for record in selection.select(records, experiment="verification")
    ]
    head = ["architecture", "data", "method", "weight", "activation probability"]
    head += ["accuracy", "TPR at FPR 0.01", "TPR at FPR 0.001"]
    return table(head, rows, "Verification") if rows else ""


def cifar100_table(records: list[Record]) -> str:
    """Returns the paper's table and ours."""
    rows: list[list[Any]] = []
    for name, (title, paper) in PAPER.items():
        rows.append([title, "paper", *map(float, paper)])
        record = in_table(records, name)
        if record is not None:
            by = record.get("source", "here")
            rows.append([title, by, *(round(number, 2) for number in numbers(record))])
    head = ["model", "by", "multiply-adds per row", "train prec@4", "train prec@16"]
    head += ["test prec@4", "test prec@16"]
    return table(head, rows, "CIFAR-100: precision in percent, without re-ranking")


def tradeoff_points(records: list[Record]) -> list[dict[str, Any]]:
    """Returns the points that the page's calculator chooses from."""
    try:
        shown = tradeoff.points(records)
    except NotMeasured:
        return []
    return [
        {
            "name": f"{record['architecture']}, {drawing.look(record['method']).label}",
            "setting": setting(record),
            "recall": record["recall_at_1"],
            "ms": record["milliseconds_per_query"],
            "bytes": record["index_bytes"] + record.get("rerank_bytes", 0),
            "rows": record["distractors"] + record["probes"],
        }
        for record in shown
    ]


def data_uri(image: np.ndarray) -> str:
    """Returns a grey image that `glyph_sets` stored as a PNG in a URI, ink black on white."""
    from PIL import Image  # comes with matplotlib

    ink = np.clip((image.astype(np.int16) - 64) * 2, 0, 255)  # 64 is paper, 192 is ink
    file = io.BytesIO()
    Image.fromarray((255 - ink).astype(np.uint8)).save(file, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def code_strip(code: dict[int, float], dim: int, shared: set[int]) -> str:
    """Draws a sparse code: a bar at each active dimension, coloured if the query has it too."""
    top = max(map(abs, code.values()), default=1.0)
    bars = "".join(
        f'<rect x="{place}" y="{24 * (1 - abs(value) / top):.1f}" width="{dim / 128:g}" '
        f'height="{24 * abs(value) / top:.1f}"{" class=shared" if place in shared else ""}>'
        f"<title>dimension {place}: {value:.3f}</title></rect>"
        for place, value in sorted(code.items())
    )
    return (
        f'<svg class=code viewBox="0 0 {dim} 24" preserveAspectRatio="none" role="img" '
        f'aria-label="{len(code)} of {dim} dimensions active, {len(shared & code.keys())} of them '
        f'shared">{bars}</svg>'
    )


def gallery(record: Record) -> str:
    """Returns queries with their results, and the images that dimensions respond to most."""
    raw = selection.arrays(record)
    uris = [data_uri(image) for image in raw["images"]]
    bounds = raw["indptr"]
    codes = [
        dict(zip(raw["indices"][a:b].tolist(), raw["data"][a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(bounds)
    ]
    dim = record["dim"]
    rows = []
    queries = zip(raw["queries"], raw["results"], raw["is_right"], raw["scores"], strict=True)
    for number, (query, results, right, scores) in enumerate(queries):
        cells = []
        for place, is_right, score in zip(results, right, scores, strict=True):
            if place < 0:
                continue
            kind, sign = ("right", "✓ right") if is_right else ("wrong", "✗ wrong")
            cells.append(
                f'<li class="{kind}"><img src="{uris[place]}" alt="result, {kind}">'
                f"<span>{sign} {score:.2f}</span>"
                f"{code_strip(codes[place], dim, set(codes[query]))}</li>"
            )
        why = "" if number < record["random_queries"] else " (chosen because it went wrong)"
        rows.append(
            f'<div class=query><figure><img src="{uris[query]}" alt="query {number + 1}">'
            f"<figcaption>query {number + 1}{why}</figcaption>"
            f"{code_strip(codes[query], dim, set(codes[query]))}</figure>"
            f"<ol>{''.join(cells)}</ol></div>"
        )
    dimensions = []
    for dimension, places, values in zip(
        raw["dimensions"], raw["responses"], raw["activations"], strict=True
    ):
        images = "".join(
            f'<img src="{uris[place]}" alt="activation {value:.2f}" title="{value:.2f}">'
            for place, value in zip(places, values, strict=True)
            if place >= 0
        )
        dimensions.append(f"<div class=dimension><b>{dimension}</b>{images}</div>")
    return (
        f"<h3>{escape(record['architecture'])}, {escape(record['method'])} "
        f"{escape(setting(record))}</h3>"
        f"<p>{record['random_queries']} queries drawn at random, and some drawn from those whose "
        f"first result is wrong, searched among {record['rows']:,} rows by their sparse codes "
        "only. In a sample of queries the first result was right in "
        f"{record['first_result_right']:.1%}. Below each image is its code: a bar per active "
        f"dimension of {dim}, coloured if the query has it too.</p>{''.join(rows)}"
        "<h3>What a dimension responds to</h3><p>The images with the highest activation in "
        "each of the dimensions that matter most to the queries above.</p>"
        f"<div class=dimensions>{''.join(dimensions)}</div>"
    )


def machine(records: list[Record]) -> str:
    """Returns the machine that made the records, as a list of definitions."""
    if not records:
        return "<p>Nothing was measured.</p>"
    note = max((record["provenance"] for record in records), key=lambda note: note["time"])
    entries = {
        "measured": note["time"],
        "processor": f"{note['hardware']['processor']}, {note['hardware']['cores']} cores",
        "revision": note["revision"],
        "Python": note["python"],
        **note["versions"],
    }
    cells = "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in entries.items())
    return f"<dl>{cells}</dl>"


def steps_table(run_dir: pathlib.Path) -> str:
    """Returns the steps of a run that `reproduce` made, and the time of each."""
    path = run_dir / STEPS
    if not path.exists():
        return ""
    rows = [
        [name, step["seconds"], " ".join(step["command"])]
        for name, step in json.loads(path.read_text()).items()
    ]
    return table(["step", "seconds", "command"], rows, "What was run")


def render(records: list[Record], found: list[claims.Verdict], run_dir: pathlib.Path) -> str:
    """Draws the figures into the reproduction's folder and returns the page."""
    sections = [
        figure_section(name, entry, records, found, run_dir / PICTURES)
        for name, entry in FIGURES.items()
    ]
    galleries = [gallery(record) for record in selection.select(records, experiment="gallery")]
    rows = [[v.claim, v.word, told(v), v.figure] for v in found]
    return string.Template(TEMPLATE.read_text()).substitute(
        title=f"sparse-embed: {escape(run_dir.resolve().name)} run",
        summary=escape(summary(found)),
        machine=machine([record for record in records if "source" not in record]),
        steps=steps_table(run_dir),
        claims=table(["claim", "verdict", "numbers", "figure"], rows, "The paper's claims"),
        figures="".join(sections),
        cifar100=cifar100_table(records),
        identification=identification_table(records),
        verification=verification_table(records),
        points=json.dumps(tradeoff_points(records)).replace("<", "\\u003c"),
        gallery="".join(galleries) or "<p class=absent>This run has no gallery.</p>",
    )


def summary(found: list[claims.Verdict]) -> str:
    """Returns how many claims held, and how many were judged on earlier records."""
    counts = {word: sum(v.word == word for v in found) for word in ("held", "not held")}
    text = (
        f"{counts['held']} of {len(found)} claims held, {counts['not held']} did not, "
        f"{len(found) - sum(counts.values())} were not measured."
    )
    kept = sorted({v.source for v in found if v.source})
    if kept:
        count = sum(v.source is not None for v in found)
        text += f" {count} of the claims were judged on {', '.join(kept)}, not on this run."
    return text


def write(run_dir: pathlib.Path, cifar100: pathlib.Path | None = None) -> list[claims.Verdict]:
    """Writes figures, verdicts and report of a reproduction into its folder.

    Args:
        run_dir: the folder.
        cifar100: recorded results of CIFAR-100, for a reproduction without its own; see
            `selection.load`.
    """
    records = selection.load(run_dir, cifar100)
    found = claims.verdicts(records)
    page = render(records, found, run_dir)
    with atomic_path(run_dir / CLAIMS) as temporary:
        temporary.write_text(
            json.dumps([dataclasses.asdict(verdict) for verdict in found], indent=1)
        )
    with atomic_path(run_dir / REPORT) as temporary:
        temporary.write_text(page)
    return found


def write_and_tell(run_dir: pathlib.Path, cifar100: pathlib.Path | None = None) -> str:
    """Calls `write`; returns the verdicts, a line each, and the report's path."""
    found = write(run_dir, cifar100 or recorded("cifar100"))
    lines = [
        f"{verdict.word:13} {verdict.claim}"
        + (f" [recorded in {verdict.source}]" if verdict.source else "")
        for verdict in found
    ]
    return "\n".join([*lines, summary(found), str(run_dir / REPORT)])


def publish(run_dir: pathlib.Path, folder: pathlib.Path) -> None:
    """Copies the inputs of the report, without the raw results of identification, and figures."""
    kept = [run_dir / CLAIMS, *(run_dir / PICTURES).glob("*.*")]
    kept += [path for path in [run_dir / STEPS] if path.exists()]
    for record in selection.load(run_dir):
        suffixes = [".json"] if record["experiment"] == "megaface" else [".json", ".npz"]
        kept += [record["folder"] / f"{record['name']}{suffix}" for suffix in suffixes]
    for path in kept:
        target = folder / path.relative_to(run_dir)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
