r"""Measures, fits and applies the cost model of search: see docs/cost_model.md.

    python benchmarks/cost_model.py --stage=build --rows=1000000 --nnz=32
    python benchmarks/cost_model.py --stage=index --rows=1000000 --nnz=32
    python benchmarks/cost_model.py --stage=fit
    python benchmarks/cost_model.py --stage=plan

Each stage reads what earlier ones wrote to `--cost_dir` and writes a file of its own there:

    build   an index of made-up rows, in `--shard_dir`; run it for several --rows and --nnz
    index   times and bytes of such an index, which is removed
    spread  the same queries on four shards: how much times differ between shards
    others  merging, exhaustive dense search and IVF-PQ
    fit     the model, from the indexes of 1, 3 and 10 million rows
    predict an index of --rows and --nnz that was not measured yet
    check   all predictions against the indexes that were measured since
    plan    100 million and a billion rows: shards, memory, latency, cores; a figure, and tables,
            which go between the marks of the page --output
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

import cost_measure
import cost_plan
import cost_report
import cost_rivals
import numpy as np
import row_options
from cost_formula import FIT_ROWS, Fit, errors
from cost_measure import KS
from shard_queue import Spread

from sparse_embed.common.failures import UsageError
from sparse_embed.common.options import option
from sparse_embed.common.reading import read_json
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.markdown import put_between_marks
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.flags import app
from sparse_embed.flags.options import fields

SHARDS_MEASURED = 4
RIVAL_QUERIES = 128
PLANNED_ROWS = (100_000_000, 1_000_000_000)
SHARD_ROWS = (5_000_000, 10_000_000, 20_000_000)
RATES = (100.0, 1000.0)  # queries per second


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the stages are told; the flags of the script explain each."""

    shard_dir: pathlib.Path
    rows: int
    dims: int
    nnz: int
    queries: int
    rounds: int
    num_threads: int
    round_trip_ms: float
    call_ms: float
    gigabits: float
    replica_cores: int
    picture: pathlib.Path
    page: pathlib.Path | None


def build(folder: pathlib.Path, options: Settings) -> None:
    """Builds one index."""
    del folder  # there is no record yet
    _build(options, 0)


def index(folder: pathlib.Path, options: Settings) -> None:
    """Times one index, and removes it."""
    path = _shard(options, 0)
    sizes = (options.queries, options.rounds)
    found = cost_measure.measure_index(path, _ks(options.rows), *sizes)
    found = [{"nnz": options.nnz, **record} for record in found]
    _show(found, ["rows", "nnz", "kind", "k", "flops_per_row", "bytes_per_row", "p50", "p99"])
    name = f"index_{options.rows}_{options.nnz}.json"
    records.save_all(folder / name, found, queries=options.queries, rounds=options.rounds)
    cost_measure.remove(path)


def spread(folder: pathlib.Path, options: Settings) -> None:
    """Times the same queries on several shards, builds and removes them."""
    parts = range(1, 1 + SHARDS_MEASURED)
    for part in parts:
        _build(options, part)
    paths = [_shard(options, part) for part in parts]
    taken = cost_measure.measure_spread(paths, _ks(options.rows), options.rounds)
    found: list[Record] = [
        {
            "rows": options.rows,
            "nnz": options.nnz,
            "k": k,
            **cost_measure.percentiles(times.ravel()),
            "microseconds": np.round(1e6 * times).astype(int).tolist(),
        }
        for k, times in taken.items()
    ]
    _show(found, ["rows", "nnz", "k", "p50", "p99"])
    records.save_all(folder / "spread.json", found)
    for path in paths:
        cost_measure.remove(path)


def fit(folder: pathlib.Path, options: Settings) -> None:
    """Fits the model."""
    measured = cost_report.load_indexes(folder)
    base = [record for record in measured if record["rows"] in FIT_ROWS]
    if {record["rows"] for record in base} != set(FIT_ROWS):
        raise UsageError(f"--cost_dir={folder}: expected indexes of {FIT_ROWS} rows")
    model = Fit.of(base)
    fitted = errors([model.predict(record, record["rows"]) for record in base], base)
    worst = max(abs(record["time_error"]) for record in fitted)
    typical = float(np.median([abs(record["time_error"]) for record in fitted]))
    print(f"fit: relative errors of {typical:.1%} in the median, {worst:.1%} at most")
    records.save_all(folder / "fit.json", fitted, model=dataclasses.asdict(model))


def predict(folder: pathlib.Path, options: Settings) -> None:
    """Predicts an index that was not measured yet, from the sparsity of a batch of its rows."""
    model = _model(folder)
    sizes = (options.dims, options.nnz, options.queries)
    settings = cost_measure.sparsities(*sizes)
    found = [
        model.predict({"nnz": options.nnz, "k": k, **setting}, options.rows)
        for setting in settings
        for k in _ks(options.rows)
    ]
    _show(found, ["rows", "nnz", "kind", "k", "flops_per_row", "p50", "bytes_per_row"])
    records.save_all(folder / f"predicted_{options.rows}_{options.nnz}.json", found)


def check(folder: pathlib.Path, options: Settings) -> None:
    """Compares predictions with what was measured since."""
    del options
    predicted: list[Record] = []
    for path in sorted(folder.glob("predicted_*.json")):
        predicted += read_json(path, "what --stage=predict writes")["records"]
    if not predicted:
        raise UsageError(f"--cost_dir={folder}: expected what --stage=predict writes")
    found = errors(predicted, cost_report.load_indexes(folder))
    _show(found, list(found[0]))
    records.save_all(folder / "check.json", found)


def others(folder: pathlib.Path, options: Settings) -> None:
    """Times merging, and the rivals at `rows` rows."""
    merging = cost_measure.measure_merge([2, 10, 50, 200, 1000], KS)
    _show(merging, ["shards", "k", "milliseconds"])
    sizes = (options.rows, options.dims, options.nnz, RIVAL_QUERIES, KS[0], options.num_threads)
    found = cost_rivals.measure(*sizes)
    for record in found:
        print(record)
    records.save_all(folder / "others.json", found, merge=merging)


def plan(folder: pathlib.Path, options: Settings) -> None:
    """Applies the model to more rows: `plan.json`, a figure, and tables in the page."""
    model = _model(folder)
    own = [
        record
        for record in cost_report.load_indexes(folder)
        if (record["rows"], record["nnz"]) == (max(FIT_ROWS), options.nnz)
    ]
    if not own:
        raise UsageError(f"--nnz={options.nnz}: expected one that was measured")
    settings = {r["k"]: cost_plan.Setting.of(r) for r in own if r["kind"] == "far"}
    measured = read_json(folder / "spread.json", "what --stage=spread writes")["records"]
    spreads = {r["k"]: Spread(np.array(r["microseconds"]) / 1e6) for r in measured}
    rivals = read_json(folder / "others.json", "what --stage=others writes")
    caller = cost_plan.Caller(
        options.round_trip_ms,
        options.call_ms,
        options.gigabits,
        cost_plan.MergeModel.fit(rivals["merge"]),
    )
    site = cost_plan.Site(options.replica_cores, caller)
    found = [
        cost_plan.plan(model, settings[k], rows, shard_rows, rate, spreads[k], site)
        for rows in PLANNED_ROWS
        for shard_rows in SHARD_ROWS
        for k in KS
        for rate in RATES
    ]
    k = KS[0]
    dense = cost_rivals.Dense.of(rivals["records"])
    ivfpq = cost_rivals.IVFPQ.of(rivals["records"])
    compared = [
        record
        for rows in PLANNED_ROWS
        for record in cost_plan.compare(
            model, settings[k], rows, SHARD_ROWS[1], spreads[k], dense, ivfpq
        )
    ]
    records.save_all(
        folder / "plan.json",
        found,
        nnz=options.nnz,
        site=dataclasses.asdict(site),
        dense=dataclasses.asdict(dense),
        ivfpq=dataclasses.asdict(ivfpq),
        compared=compared,
    )
    cost_report.draw(folder, options.picture)
    text = cost_report.markdown(folder)
    print(text)
    if options.page:
        picture = os.path.relpath(options.picture, options.page.parent)
        text = f"![time per query and latency of many shards]({picture})\n\n{text}"
        page = options.page.read_text() if options.page.exists() else ""
        options.page.write_text(put_between_marks(page, text))


STAGES: dict[str, Callable[[pathlib.Path, Settings], None]] = {
    "build": build,
    "index": index,
    "spread": spread,
    "others": others,
    "fit": fit,
    "predict": predict,
    "check": check,
    "plan": plan,
}


def _shard(options: Settings, part: int) -> pathlib.Path:
    return options.shard_dir / f"{options.rows}_{options.nnz}_{part}.index"


def _build(options: Settings, part: int) -> None:
    sizes = (options.rows, options.dims, options.nnz, options.queries)
    cost_measure.build(_shard(options, part), *sizes, options.num_threads, part)


def _model(folder: pathlib.Path) -> Fit:
    return Fit.from_json(read_json(folder / "fit.json", "what --stage=fit writes")["model"])


def _ks(rows: int) -> list[int]:
    return [k for k in KS if k <= rows]


def _show(found: list[Record], keys: list[str]) -> None:
    def text(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    print(text_table(keys, [[text(record[key]) for key in keys] for record in found]), flush=True)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    dims: int = row_options.dims()
    nnz: int = row_options.nnz()
    rows: int = row_options.rows()
    output: str | None = fields.output()
    num_threads: int = fields.num_threads()
    stage: str | None = option(None, "What to do; see above.", choices=list(STAGES))
    cost_dir: str = option("runs/cost_model/records", "Folder of the records.")
    shard_dir: str = option(
        "runs/cost_model", "Folder of index files, which are removed once timed."
    )
    picture: str = option("results/pictures/cost_model.png", "Figure of the plan (.png).")
    cost_queries: int = option(300, "Queries of each kind.", lower=10, upper=50_000)
    timing_rounds: int = option(3, "How often each query is timed.", lower=1)
    round_trip_ms: float = option(
        1.2, "Milliseconds to call all shards and back, assumed.", lower=0.0
    )
    call_ms: float = option(0.1, "Milliseconds of the caller for each shard, assumed.", lower=0.0)
    gigabits: float = option(10.0, "Gigabits per second into the caller, assumed.", lower=0.001)
    replica_cores: int = option(4, "Cores of each replica of a shard.", lower=1)


def main(options: Options) -> None:
    """Runs one stage."""
    if not options.stage:
        raise UsageError(f"--stage is not given: expected one of {', '.join(STAGES)}")
    folder = app.writable_folder("cost_dir", options.cost_dir)
    settings = Settings(
        shard_dir=app.writable_folder("shard_dir", options.shard_dir),
        rows=options.rows,
        dims=options.dims,
        nnz=options.nnz,
        queries=options.cost_queries,
        rounds=options.timing_rounds,
        num_threads=options.num_threads,
        round_trip_ms=options.round_trip_ms,
        call_ms=options.call_ms,
        gigabits=options.gigabits,
        replica_cores=options.replica_cores,
        picture=app.writable_file("picture", options.picture, ".png"),
        page=app.writable_file("output", options.output, ".md") if options.output else None,
    )
    STAGES[options.stage](folder, settings)


if __name__ == "__main__":
    app.run(main, Options)
