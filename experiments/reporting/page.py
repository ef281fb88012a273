"""The report of a reproduction: one HTML file that opens from disk and needs no network."""

import dataclasses
import html
import json
import pathlib
import re
import shutil
import string
from typing import Any

import numpy as np

from sparse_embed.common.files import atomic_path
from sparse_embed.experiments.core import notes
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import claims, drawing, gallery, selection, study, tables
from sparse_embed.experiments.reporting.figures import FIGURES, Entry, tradeoff
from sparse_embed.experiments.reporting.judging import (
    HELD,
    NOT_HELD,
    NOT_MEASURED,
    OUTCOMES,
    UNDECIDED,
)
from sparse_embed.experiments.reporting.selection import TIME, NotMeasured, recorded

REPORT, CLAIMS, PICTURES = "report.html", "claims.json", "figures"
REHEARSAL = "rehearsal"  # why its claims are not judged
OUTCOME_TYPES: dict[str, tuple[type, ...]] = {  # raw results that a published copy keeps
    "labels": (np.int16, np.int32),
    "mates": (np.uint8, np.uint16),
    "hits": (np.uint8, np.uint16),
    "seconds": (np.float32,),
}
TEMPLATE = pathlib.Path(__file__).with_name("page.html")

escape = html.escape


def inline_svg(path: pathlib.Path, description: str) -> str:
    """Returns an SVG file as part of a page: black takes the colour of the page's text."""
    text = path.read_text()
    text = text[text.index("<svg") :].replace("#000000", "currentColor")
    text = re.sub(r' id="[a-z]+\w*_\d+"', "", text)  # names of groups, the same in every figure
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def verdict_badge(verdict: claims.Verdict) -> str:
    """Returns the verdict as a coloured word with a sign."""
    sign = {HELD: "✓", NOT_HELD: "✗", UNDECIDED: "≈"}.get(verdict.verdict, "?")
    kind = verdict.verdict.replace(" ", "-")
    return f'<span class="badge {kind}">{sign} {verdict.verdict}</span>'


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


def tradeoff_points(records: list[Record]) -> list[dict[str, Any]]:
    """Returns the points that the page's calculator chooses from: means over seeds."""
    try:
        shown = tradeoff.points(records)
    except NotMeasured:
        return []
    return [
        {
            "name": f"{record['architecture']}, {drawing.look(record['method']).label}",
            "setting": selection.setting(record),
            "recall": record["recall_at_1"],
            "ms": record[TIME],
            "bytes": record["index_bytes"] + record.get("rerank_bytes", 0),
            "rows": record["distractors"] + record["probes"],
        }
        for record in shown
    ]


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
    path = run_dir / notes.STEPS
    if not path.exists():
        return ""
    rows = [
        [name, step["seconds"], _gibibytes(step.get("peak_bytes")), " ".join(step["command"])]
        for name, step in notes.read_done(path).items()
    ]
    head = ["step", "seconds", "peak memory, GiB", "command"]
    return tables.table(head, rows, "What was run")


def _gibibytes(count: int | None) -> float | None:
    return None if count is None else round(count / 2**30, 1)


def rehearsal_banner(rows: list[notes.Row]) -> str:
    """Returns what stands at the top of a rehearsal's report: that it is one, and the notes."""
    text = (
        "<p><strong>A rehearsal, not a result.</strong> Every step of PRESET=paper was run, but "
        "with a few training steps, weights and images. The numbers below show that the steps "
        "work, and nothing else; no claim is judged.</p>"
    )
    if rows:
        text += f"<p>{escape(notes.summary(rows))} {escape(notes.ASSUMED)}</p>"
        cells = [row.cells for row in rows]
        text += tables.table(notes.HEAD, cells, "How long the whole would take on this machine")
    return f'<div class=banner role="note">{text}</div>'


def render(
    records: list[Record],
    found: list[claims.Verdict],
    run_dir: pathlib.Path,
    rehearsal: list[notes.Row] | None,
) -> str:
    """Draws the figures into the reproduction's folder and returns the page.

    Args:
        records: of the reproduction.
        found: the verdicts on the claims.
        run_dir: its folder.
        rehearsal: the estimate of a rehearsal; None if it is not one.
    """
    name = f"{escape(run_dir.resolve().name)} run"
    if rehearsal is not None:
        name = "a rehearsal, not a result"
    sections = [
        figure_section(name, entry, records, found, run_dir / PICTURES)
        for name, entry in FIGURES.items()
    ]
    galleries = [
        gallery.section(record) for record in selection.select(records, experiment="gallery")
    ]
    rows = [[v.claim, v.verdict, told(v), v.figure] for v in found]
    return string.Template(TEMPLATE.read_text()).substitute(
        title=f"sparse-embed: {name}",
        banner="" if rehearsal is None else rehearsal_banner(rehearsal),
        summary=escape(summary(found)),
        machine=machine([record for record in records if "source" not in record]),
        steps=steps_table(run_dir),
        claims=tables.table(["claim", "verdict", "numbers", "figure"], rows, "The paper's claims"),
        figures="".join(sections),
        cifar100=tables.cifar100(records),
        regularizers=tables.regularizers(records),
        identification=tables.identification(records),
        verification=tables.verification(records),
        points=json.dumps(tradeoff_points(records)).replace("<", "\\u003c"),
        gallery="".join(galleries) or "<p class=absent>This run has no gallery.</p>",
    )


def summary(found: list[claims.Verdict]) -> str:
    """Returns how many claims held, and how many were judged on earlier records."""
    if found == claims.unjudged(REHEARSAL):
        return "No claim was judged: this is a rehearsal."
    counts = {word: sum(v.verdict == word for v in found) for word in OUTCOMES}
    text = (
        f"{counts[HELD]} of {len(found)} claims held, {counts[NOT_HELD]} did not, "
        f"{counts[UNDECIDED]} undecided, {counts[NOT_MEASURED]} not measured."
    )
    kept = sorted({v.source for v in found if v.source})
    if kept:
        count = sum(v.source is not None for v in found)
        text += f" {count} of the claims were judged on {', '.join(kept)}, not on this run."
    return text


def write(run_dir: pathlib.Path, cifar100: pathlib.Path | None = None) -> list[claims.Verdict]:
    """Writes figures, verdicts and report of a reproduction into its folder.

    Those of a rehearsal judge nothing and hold nothing but its own records.

    Args:
        run_dir: the folder.
        cifar100: recorded results of CIFAR-100, for a reproduction without its own; see
            `selection.load`.
    """
    rehearsal = notes.read_estimate(run_dir)
    records = selection.load(run_dir, cifar100 if rehearsal is None else None)
    found = claims.verdicts(records) if rehearsal is None else claims.unjudged(REHEARSAL)
    page = render(records, found, run_dir, rehearsal)
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
        f"{verdict.verdict:13} {verdict.claim}"
        + (f" [recorded in {verdict.source}]" if verdict.source else "")
        for verdict in found
    ]
    return "\n".join([*lines, summary(found), str(run_dir / REPORT)])


def publish(run_dir: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the inputs of the report as a `study`; figures can be drawn from it again.

    Of the raw results of identification, which are large, it keeps what intervals are made of.
    """
    study.save(folder, map(_published, selection.load(run_dir)))
    for name in (CLAIMS, notes.STEPS, notes.MARK):
        if (run_dir / name).exists():
            with atomic_path(folder / name) as temporary:
                shutil.copyfile(run_dir / name, temporary)


def _published(record: Record) -> tuple[Record, dict[str, np.ndarray]]:
    """Returns a record and its raw results, those of identification in the smallest types."""
    kept = {key: value for key, value in record.items() if key not in ("folder", "arrays")}
    try:
        raw = selection.arrays(record)
    except NotMeasured:
        raw = {}
    if record["experiment"] == "megaface":
        kinds = {name: kinds for name, kinds in OUTCOME_TYPES.items() if name in raw}
        raw = {name: _smallest(raw[name], types) for name, types in kinds.items()}
    return kept, raw


def _smallest(array: np.ndarray, types: tuple[type, ...]) -> np.ndarray:
    """Returns an array in the first of some types that holds its values, or as it is."""
    for kind in types:
        if kind is np.float32:
            return array.astype(kind)
        limits = np.iinfo(kind)
        if array.size and limits.min <= array.min() and array.max() <= limits.max:
            return array.astype(kind)
    return array
