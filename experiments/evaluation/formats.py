"""How good and how fast the exported encoders of a run are, beside its Keras encoder."""

import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import json
import multiprocessing
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.other_load import OtherLoad
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.provenance import provenance
from sparse_embed.common.quiet import quiet_tensorflow
from sparse_embed.experiments.core.data import load_data, reading_part
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.encoders.embedding import embed, examples_at_once
from sparse_embed.experiments.encoders.encoder import Encoder, open_encoder
from sparse_embed.experiments.encoders.export import export
from sparse_embed.experiments.methods.leave_one_out import recalls

TABLE = "encoders.json"  # in the folder of a run
THREADS = (1, 2)
_ROUNDS, _WARM_UP, _CALLS = 3, 10, 200  # calls of one example that warm up, and that are timed
_SECONDS = 3.0  # the longest turn of a format


def export_and_verify(
    run: Run, formats: Sequence[str], most: int = 2000, data_dir: str | None = None
) -> list[Record]:
    """Exports the encoder of a run, and verifies what was written against the Keras encoder.

    Args:
        run: the run.
        formats: some of `EXPORTED`.
        most: how many examples of unseen classes to compare on.
        data_dir: where the data set is now; None for where it was.

    Returns:
        A record for the Keras encoder and each format, also saved as `TABLE` in the run's folder;
        see `verify`.
    """
    data = run.config.data
    parts = load_data(dataclasses.replace(data, data_dir=data_dir or data.data_dir))
    unseen = parts.get("test") or parts.get("validation")
    if unseen is None:
        raise UsageError("expected a run with --test or --validation, whose classes are unseen")
    export(run, formats, parts["train"])
    found = verify(run, ["keras", *formats], unseen, most)
    content = {"run": run.name, "train": run.config.to_dict(), "encoders": found}
    with atomic_path(run.folder / TABLE) as temporary:
        temporary.write_text(json.dumps({**content, "provenance": provenance()}, indent=1))
    return found


def verify(run: Run, formats: Sequence[str], unseen: Any, most: int) -> list[Record]:
    """Compares encoders of a run with its first.

    Args:
        run: the run.
        formats: those to compare; the first is the yardstick.
        unseen: examples of classes that it was not trained on.
        most: how many of them to take.

    Returns:
        For each format: `format`, `examples`, `largest_difference` and `equal_zeros` (the share of
        values that are zero in both or in neither), `smallest_norm`, `largest_norm`,
        `recall_at_1` of each example among the others, `bytes`, and for each number of threads
        `milliseconds_<threads>`, the median for one example, and `other_load_<threads>`.
    """
    batches = unseen.evaluation_batches(examples_at_once(unseen.shape))
    found: list[Record] = []
    expected: np.ndarray | None = None
    with reading_part(unseen):
        few = batches.unbatch().take(most).batch(examples_at_once(unseen.shape)).cache()
        for name in formats:
            encoder = open_encoder(run.folder, name, max(THREADS))
            rows, labels = embed(encoder, few, sparse=False)
            rows = np.asarray(rows)
            expected = rows if expected is None else expected
            norms = np.linalg.norm(rows[rows.any(axis=1)], axis=1)
            found.append(
                {
                    "format": name,
                    "examples": len(rows),
                    "largest_difference": float(np.abs(rows - expected).max()),
                    "equal_zeros": float(np.mean((rows == 0) == (expected == 0))),
                    "smallest_norm": float(norms.min(initial=1)),
                    "largest_norm": float(norms.max(initial=1)),
                    **recalls(scipy.sparse.csr_array(rows), labels),
                    "bytes": sum(file.stat().st_size for file in encoder.files),
                }
            )
    # In processes of their own: TensorFlow takes its number of threads once.
    context = multiprocessing.get_context("spawn")
    for threads in THREADS:
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            times, load = pool.submit(milliseconds, run.folder, list(formats), threads).result()
        for record in found:
            record[f"milliseconds_{threads}"] = times[record["format"]]
            record[f"other_load_{threads}"] = load
    return found


def milliseconds(
    folder: pathlib.Path, formats: Sequence[str], threads: int
) -> tuple[dict[str, float], float | None]:
    """Returns the median time of one example for each format; they are timed in turns.

    For a process that has not used TensorFlow yet. The second result is how many cores other
    processes kept busy meanwhile; None without psutil, which the extra `baselines` brings.
    """
    quiet_tensorflow()
    if {"keras", "saved_model"} & set(formats):
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    encoders = [open_encoder(folder, name, threads) for name in formats]
    example = np.random.default_rng(0).random((1, *encoders[0].input_shape), np.float32)
    taken: dict[str, list[float]] = {name: [] for name in formats}
    has_psutil = importlib.util.find_spec("psutil") is not None
    with OtherLoad() if has_psutil else contextlib.nullcontext() as load:
        for _ in progress_bar(range(_ROUNDS), desc=f"timing on {threads}", unit="round"):
            for name, encoder in zip(formats, encoders, strict=True):
                taken[name] += _turn(encoder, example)
    medians = {name: 1e3 * statistics.median(seconds) for name, seconds in taken.items()}
    return medians, load.cores if load is not None else None


def _turn(encoder: Encoder, example: np.ndarray) -> list[float]:
    """Returns the seconds of single calls."""
    for _ in range(_WARM_UP):
        encoder.encode(example)
    seconds: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(seconds) < _CALLS and time.perf_counter() < end:
        start = time.perf_counter()
        encoder.encode(example)
        seconds.append(time.perf_counter() - start)
    return seconds


def table(found: Sequence[Record]) -> str:
    """Returns the records of `verify` as a table for the terminal."""
    head = ["encoder", "difference", "equal zeros", "recall@1", "bytes"]
    head += [f"ms, {threads} thread{'s' * (threads > 1)}" for threads in THREADS]
    rows = [
        [
            record["format"],
            f"{record['largest_difference']:.1e}",
            f"{record['equal_zeros']:.5f}",
            f"{record['recall_at_1']:.4f}",
            f"{record['bytes']:,}",
            *(f"{record[f'milliseconds_{threads}']:.2f}" for threads in THREADS),
        ]
        for record in found
    ]
    return text_table(head, rows)
