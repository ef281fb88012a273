"""Tables and the figure of the cost model, from its records."""

import pathlib

import numpy as np
from cost_formula import TERMS, Fit

from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.reading import read_json
from sparse_embed.experiments.core.markdown import titled_table
from sparse_embed.experiments.core.records import Record

_OTHERS = ("#0072B2", "#D55E00")  # by rows
_COLOURS = {10: "#0072B2", 100: "#D55E00", 1000: "#009E73"}  # by k


def load_indexes(folder: pathlib.Path) -> list[Record]:
    """Reads the records of all indexes in a folder."""
    found: list[Record] = []
    for path in sorted(folder.glob("index_*.json")):
        found += read_json(path, "what --stage=index writes")["records"]
    if not found:
        raise DataError(f"{folder}: expected records of --stage=index")
    return found


def markdown(folder: pathlib.Path) -> str:
    """All tables of a folder that has been through all stages."""
    fit, check, plan = (
        read_json(folder / f"{name}.json", f"what --stage={name} writes")
        for name in ("fit", "check", "plan")
    )
    model = Fit.from_json(fit["model"])
    coefficients = [
        [
            kind,
            f"{one.flops_per_row:.2f}",
            f"{one.nonzeros:.0f}",
            *(f"{1e3 * value:.4g}" for value in one.coefficients),
        ]
        for kind, times in model.times.items()
        for one in times.measured
    ]
    cached = ", ".join(f"{times.cached:g} for {kind} ones" for kind, times in model.times.items())
    size = f"{model.size.per_row:.1f} + {model.size.per_nonzero:.2f} z"
    worst = max(abs(record["time_error"]) for record in fit["records"])
    middle = np.median([abs(record["time_error"]) for record in fit["records"]])
    tables = [
        titled_table("Coefficients, microseconds", ["queries", "F", "z", *TERMS], coefficients)
        + f"\n\nC, in millions of non-zeros: {cached}. Bytes per row: {size}. Errors of the fit on "
        f"its own measurements: {middle:.1%} in the median, {worst:.1%} at most.",
        titled_table(
            "The prediction",
            ["rows", "nnz", "queries", "k", "predicted ms", "measured ms", "off", "bytes off"],
            [
                [
                    f"{record['rows']:,}",
                    str(record["nnz"]),
                    record["kind"],
                    str(record["k"]),
                    f"{record['predicted_p50']:.2f}",
                    f"{record['measured_p50']:.2f}",
                    f"{record['time_error']:+.1%}",
                    f"{record['bytes_error']:+.1%}",
                ]
                for record in check["records"]
            ],
        ),
    ]
    for rows in sorted({record["rows"] for record in plan["records"]}):
        chosen = [record for record in plan["records"] if record["rows"] == rows]
        tables.append(titled_table(f"{rows:,} rows", *_plan_table(chosen)))
    head = ["rows", "method", "ms per shard", "core seconds per query", "GB", "recall"]
    compared = [
        [
            f"{record['rows']:,}",
            record["method"],
            f"{record['shard_milliseconds']:.3g}",
            f"{record['core_seconds_per_query']:.3g}",
            f"{record['gigabytes']:,.0f}",
            f"{record['recall']:.2f}",
        ]
        for record in plan["compared"]
    ]
    tables.append(titled_table("Against dense search and IVF-PQ", head, compared))
    return "\n\n".join(tables) + "\n"


def _plan_table(chosen: list[Record]) -> tuple[list[str], list[list[str]]]:
    """One line per shards, k and rate."""
    head = ["shards", "GB each", "k", "queries/s", "replicas", "cores", "GB", "p50 ms", "p99 ms"]
    return head, [
        [
            str(record["shards"]),
            f"{record['gigabytes_per_shard']:.1f}",
            str(record["k"]),
            f"{record['rate']:g}",
            str(record["replicas"]),
            f"{record['cores']:,}",
            f"{record['gigabytes']:,.0f}",
            f"{record['p50']:.1f}",
            f"{record['p99']:.1f}",
        ]
        for record in chosen
    ]


def draw(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Draws measured and fitted times against rows, and latency against the size of shards."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    plan = read_json(folder / "plan.json", "what --stage=plan writes")
    fit = read_json(folder / "fit.json", "what --stage=fit writes")
    model = Fit.from_json(fit["model"])
    fitted = {record["rows"] for record in fit["records"]}
    shown = [
        record
        for record in load_indexes(folder)
        if record["nnz"] == plan["nnz"] and record["kind"] == "far"
    ]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for k, colour in _COLOURS.items():
        own = [record for record in shown if record["k"] == k]
        sizes = np.geomspace(min(r["rows"] for r in own), max(r["rows"] for r in own), 50)
        asked = (own[0]["flops_per_row"], k)
        line = [model.times["far"].milliseconds(rows, *asked) for rows in sizes]
        left.loglog(sizes, line, color=colour, label=f"k={k}")
        for was_fitted, face in ((True, colour), (False, "white")):
            points = [(r["rows"], r["p50"]) for r in own if (r["rows"] in fitted) == was_fitted]
            if points:
                left.loglog(*zip(*points, strict=True), "o", color=colour, markerfacecolor=face)
    left.set_xlabel("rows of one index (hollow: not used in the fit)")
    left.set_ylabel("time per query, ms")
    left.legend()
    rate, k = max(record["rate"] for record in plan["records"]), min(_COLOURS)
    for rows, colour in zip(sorted({r["rows"] for r in plan["records"]}), _OTHERS, strict=False):
        own = [r for r in plan["records"] if (r["rows"], r["k"], r["rate"]) == (rows, k, rate)]
        own.sort(key=lambda record: record["shards"])
        for key, style in (("p50", "o-"), ("p99", "^--")):
            points = [(rows / record["shards"] / 1e6, record[key]) for record in own]
            right.plot(*zip(*points, strict=True), style, color=colour, label=f"{rows:,}, {key}")
    right.set_xlabel(f"million rows per shard; k={k}, {rate:g} queries per second")
    right.set_ylabel("latency of a query, ms")
    right.set_ylim(bottom=0)
    right.legend(fontsize="small")
    figure.tight_layout()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)
