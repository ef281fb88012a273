r"""Times the service: one image in, ten neighbours out, alone and with many clients.

    python -m sparse_embed.experiments.benchmark_service --run_dir=runs/reproduce/quick \
        --work_dir=runs/service --rows=1000000 --encoder=litert --output=runs/service.json

Searches rows made of the embeddings that `make reproduce` left in --run_dir, in a service of its
own process on this machine. Beside it stands the same with Keras' `predict` and exhaustive dense
search. Formats other than keras must have been exported: `export_encoder`.
"""

import pathlib

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.evaluation import records
from sparse_embed.experiments.reporting.text_table import text_table
from sparse_embed.flags import app
from sparse_embed.flags.output import ENCODER, OUTPUT, RUN_DIR
from sparse_embed.flags.workload import NUM_THREADS, ROWS

_WORK_DIR = flags.DEFINE_string("work_dir", None, "Folder of index and dense rows; they stay.")
_REQUESTS = flags.DEFINE_integer(
    "requests", 300, "Requests that are timed, one after the other.", lower_bound=30
)
_CLIENTS = flags.DEFINE_integer("clients", 16, "Clients at the same time.", lower_bound=1)
_LOAD_SECONDS = flags.DEFINE_float("load_seconds", 60.0, "Seconds of load.", lower_bound=1)


def table(found: list[records.Record]) -> str:
    """Returns the records as a text table."""
    rows = []
    for record in found:
        name = record["method"] + (", re-ranked" if record.get("reranked") else "")
        rate = record.get("requests_per_second")
        rows.append(
            [
                name,
                f"{record['milliseconds_p50']:.1f}",
                f"{record['milliseconds_p99']:.1f}",
                "-" if rate is None else f"{rate:.0f}",
                " ".join(f"{k} {v:.1f}" for k, v in record.get("stages", {}).items()),
            ]
        )
    return text_table(["method", "p50 ms", "p99 ms", "per second", "stages, ms"], rows)


def main() -> None:
    """Measures what the flags describe."""
    folder = app.writable_folder("work_dir", _WORK_DIR.value)
    output = app.writable_file("output", OUTPUT.value, ".json") if OUTPUT.value else None
    from sparse_embed.experiments.benchmarks import service_speed
    from sparse_embed.experiments.serving import demo

    found = demo.find(pathlib.Path(RUN_DIR.value))
    if found is None:
        raise UsageError(f"--run_dir={RUN_DIR.value}: expected what `make reproduce` leaves")
    measured = service_speed.measure(
        found,
        folder,
        ROWS.value,
        _REQUESTS.value,
        _CLIENTS.value,
        _LOAD_SECONDS.value,
        NUM_THREADS.value,
        ENCODER.value,
    )
    print(table(measured))
    if output:
        records.save_all(output, measured)


if __name__ == "__main__":
    app.run(main)
