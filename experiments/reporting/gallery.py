"""The gallery of a report: queries with their results and codes, and what dimensions respond to."""

import base64
import html
import io
import itertools

import numpy as np

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import selection


def data_uri(image: np.ndarray) -> str:
    """Returns a grey image that `prepare_data` drew as a PNG in a URI, ink black on white."""
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


def section(record: Record) -> str:
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
        f"<h3>{html.escape(record['architecture'])}, {html.escape(record['method'])} "
        f"{html.escape(selection.setting(record))}</h3>"
        f"<p>{record['random_queries']} queries drawn at random, and some drawn from those whose "
        f"first result is wrong, searched among {record['rows']:,} rows by their sparse codes "
        "only. In a sample of queries the first result was right in "
        f"{record['first_result_right']:.1%}. Below each image is its code: a bar per active "
        f"dimension of {dim}, coloured if the query has it too.</p>{''.join(rows)}"
        "<h3>What a dimension responds to</h3><p>The images with the highest activation in "
        "each of the dimensions that matter most to the queries above.</p>"
        f"<div class=dimensions>{''.join(dimensions)}</div>"
    )
