r"""Times the service: one image in, ten neighbours out, alone and with many clients.

    python benchmarks/service.py --run_dir=runs/reproduce/quick \
        --work_dir=runs/service --rows=1000000 --encoder=litert --output=runs/service.json

Searches rows made of the embeddings that `make reproduce` left in --run_dir, in a service of its
own process on this machine. Beside it stands the same with Keras' `predict` and exhaustive dense
search. Formats other than keras must have been exported: `export_encoder`.
"""

import contextlib
import dataclasses
import http.client
import json
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import row_options
import scipy.sparse

from sparse_embed.common.arrays import read_npy
from sparse_embed.common.failures import MachineError, UsageError
from sparse_embed.common.options import option
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import Embeddings, load, save
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.serving.demo import Found
from sparse_embed.experiments.serving.pictures import StoredPictures
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.retrieval import DenseSearch, SparseIndex

_K = 10
_SHORTLIST = 100
_WARM_UP = 20  # requests that are not timed
_BLOCK = 10_000  # rows that are varied at once


def grow(found: Found, folder: pathlib.Path, rows: int) -> tuple[pathlib.Path, pathlib.Path]:
    """Makes many rows of the embeddings of a reproduction; returns the index and the dense rows.

    The first rows are the embeddings themselves. All others are varied copies: of a sparse row each
    value stays with probability 0.8, times exp(N(0, 0.2^2)); a dense row gets noise of a third of
    its length. So dimensions are as popular, and rows as crowded, as the encoders made them.
    """
    index_path, dense_path = folder / f"{rows}.index", folder / f"{rows}.npy"
    sparse = load(found.sparse / "identification.npz").vectors.astype(np.float32)
    dense = load(found.dense / "identification.npy").vectors
    if not index_path.exists():
        pieces = (_varied_sparse(sparse, *span) for span in _spans(rows, sparse.shape[0]))
        SparseIndex.build(pieces, progress=True).save(index_path)
    if not dense_path.exists():
        pieces = (_varied_dense(dense, *span) for span in _spans(rows, len(dense)))
        all_rows = np.empty((rows, dense.shape[1]), np.float32)
        done = 0
        for piece in progress_bar(pieces, desc="dense rows", unit="block"):
            all_rows[done : done + len(piece)] = piece
            done += len(piece)
        save(dense_path, Embeddings(all_rows, np.full(rows, -1, np.int32), {"rows": rows}))
    return index_path, dense_path


def _spans(rows: int, own: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yields which rows to take, and how often they were taken before; blocks of one pass."""
    for begin in range(0, rows, _BLOCK):
        numbers = np.arange(begin, min(begin + _BLOCK, rows))
        for copy in np.unique(numbers // own):
            yield numbers[numbers // own == copy] % own, int(copy)


def _varied_sparse(
    rows: scipy.sparse.csr_array, chosen: np.ndarray, copy: int
) -> scipy.sparse.csr_array:
    part = scipy.sparse.csr_array(rows[chosen], copy=True)
    if copy:
        rng = np.random.default_rng([copy, int(chosen[0]), 0])
        part.data *= np.exp(rng.normal(0, 0.2, part.nnz)).astype(np.float32)
        part.data *= rng.random(part.nnz) < 0.8
        part.eliminate_zeros()
        norms = np.sqrt(part.multiply(part).sum(axis=1))
        part.data /= np.repeat(np.maximum(norms, 1e-12), np.diff(part.indptr)).astype(np.float32)
    return part


def _varied_dense(rows: np.ndarray, chosen: np.ndarray, copy: int) -> np.ndarray:
    part = np.asarray(rows[chosen], np.float32)
    if copy:
        rng = np.random.default_rng([copy, int(chosen[0]), 1])
        part += rng.standard_normal(part.shape, np.float32) / (3 * np.sqrt(part.shape[1]))
    unit: np.ndarray = part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12)
    return unit


@contextlib.contextmanager
def service(*arguments: str, log: pathlib.Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Runs `serve` while this lasts; gives its process and its port.

    Raises:
        MachineError: it ended before it answered; has its last line.
    """
    command = [sys.executable, "-m", "sparse_embed.experiments.serve", "--port=0", *arguments]
    with open(log, "w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("http://"):
                port = int(line.split(" ")[0].rstrip(":").rsplit(":", 1)[1])
                break
        else:
            lines = log.read_text().strip().splitlines() or ["it said nothing"]
            raise MachineError(f"serve ended: {lines[-1]}")
        _wait_until_ready(process, port)
        yield process, port
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError), Client(port) as client:
            if client.ask("GET", "/ready")[0] == 200:
                return
        time.sleep(0.05)
    raise MachineError(f"serve ended with {process.returncode}")


class Client:
    """One connection to the service."""

    def __init__(self, port: int):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *raised: object) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Returns the status and the content of an answer."""
        self._connection.request(method, path, body)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def images(found: Found, count: int, seed: int = 0) -> list[bytes]:
    """Returns some of the stored pictures as PNG, as clients upload them."""
    stored = read_npy(found.images, mmap=True, expected="stored images")
    chosen = np.random.default_rng(seed).choice(len(stored), count, replace=False)
    pictures = StoredPictures(stored)
    return [pictures.read(int(row)).data for row in chosen]


def _percentiles(seconds: list[float]) -> Record:
    return {
        "requests": len(seconds),
        "milliseconds_p50": 1e3 * float(np.percentile(seconds, 50)),
        "milliseconds_p99": 1e3 * float(np.percentile(seconds, 99)),
    }


def one_client(port: int, queries: list[bytes], rerank: bool) -> Record:
    """Times one request after the other; `stages` has the median milliseconds of each."""
    path = f"/search/image?k={_K}" + (f"&rerank=1&shortlist={_SHORTLIST}" if rerank else "")
    seconds, stages = [], []
    with Client(port) as client:
        for place, query in enumerate(queries[:_WARM_UP] + queries):
            start = time.perf_counter()
            status, content = client.ask("POST", path, query)
            taken = time.perf_counter() - start
            answer = json.loads(content)
            if status != 200 or len(answer["results"]) != _K:
                raise MachineError(f"serve answered {status}: {content[:200]!r}")
            if place >= _WARM_UP:
                seconds.append(taken)
                stages.append(answer["milliseconds"])
    medians = {stage: float(np.median([one[stage] for one in stages])) for stage in stages[0]}
    return {"method": "service", "reranked": rerank, **_percentiles(seconds), "stages": medians}


def keras_and_dense(
    found: Found, dense_path: pathlib.Path, queries: list[bytes], num_threads: int
) -> Record:
    """Times what one would do without this project: Keras' `predict`, then all dense rows.

    In this process, without HTTP, from the same bytes.
    """
    from sparse_embed.datasets.encoded_images import decode_query
    from sparse_embed.experiments.core.run import ENCODER as KERAS_FILE
    from sparse_embed.experiments.core.run import load_encoder

    model = load_encoder(found.dense / KERAS_FILE)
    rows = np.array(read_npy(dense_path, expected="dense rows"))
    search, shape = DenseSearch(rows), model.input_shape[1:]
    stages: dict[str, list[float]] = {"decode": [], "encode": [], "search": []}
    for query in queries[:3] + queries:
        marks = [time.perf_counter()]
        image = decode_query(query, shape)
        marks.append(time.perf_counter())
        embedding = model.predict(image[None], verbose=0)
        marks.append(time.perf_counter())
        search.search(embedding, _K, num_threads=num_threads)
        marks.append(time.perf_counter())
        for stage, taken in zip(stages.values(), np.diff(marks), strict=True):
            stage.append(float(taken))
    kept = np.array(list(stages.values()))[:, 3:]
    medians = {
        stage: 1e3 * float(np.median(taken)) for stage, taken in zip(stages, kept, strict=True)
    }
    totals = kept.sum(axis=0).tolist()
    return {"method": "Keras' predict and exhaustive dense search"} | {
        **_percentiles(totals),
        "stages": medians,
    }


def many_clients(
    process: subprocess.Popen[str], port: int, queries: list[bytes], clients: int, seconds: float
) -> Record:
    """Asks from several connections at once, each as fast as it is answered.

    Returns:
        Throughput, percentiles, `errors` by what they were, mean queries of a batch, and the
        service's resident bytes after a tenth of the time and at the end.
    """
    import psutil

    taken: list[float] = []
    batches: list[int] = []
    errors: dict[str, int] = {}
    end = time.perf_counter() + seconds

    def ask_once(client: Client, query: bytes) -> None:
        start = time.perf_counter()
        try:
            status, content = client.ask("POST", f"/search/image?k={_K}", query)
            answer = json.loads(content)
            if status != 200:
                raise ValueError(answer["error"])
        except (OSError, ValueError, http.client.HTTPException) as error:
            errors[repr(error)] = errors.get(repr(error), 0) + 1
            return
        taken.append(time.perf_counter() - start)
        batches.append(answer["batch"])

    def ask(seed: int) -> None:
        order = random.Random(seed)
        with Client(port) as client:
            while time.perf_counter() < end:
                ask_once(client, order.choice(queries))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(clients)]
    memory: list[Any] = []
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    with progress_bar(total=int(seconds), desc=f"{clients} clients", unit="s") as progress:
        while any(thread.is_alive() for thread in threads):
            memory.append(
                (time.perf_counter() - began, psutil.Process(process.pid).memory_info().rss)
            )
            time.sleep(1)
            progress.update(1)
    for thread in threads:
        thread.join()
    whole = time.perf_counter() - began
    early = next(size for when, size in memory if when >= seconds / 10)
    return {
        "method": "service under load",
        "clients": clients,
        "seconds": whole,
        **_percentiles(taken),
        "requests_per_second": len(taken) / whole,
        "queries_per_batch": float(np.mean(batches)),
        "errors": errors,
        "resident_bytes_early": early,
        "resident_bytes_late": memory[-1][1],
        "resident_bytes_most": max(size for _, size in memory),
    }


def measure(
    found: Found,
    folder: pathlib.Path,
    rows: int,
    requests: int,
    clients: int,
    seconds: float,
    num_threads: int,
    encoder: str,
) -> list[Record]:
    """Measures everything; see the other functions.

    Args:
        found: encoders and pictures of a reproduction.
        folder: gets index and dense rows, which stay.
        rows: how many to search.
        requests: that are timed, one after the other.
        clients: at the same time.
        seconds: of load.
        num_threads: of encoders and searches.
        encoder: format of the encoders, see `open_encoder`.
    """
    index_path, dense_path = grow(found, folder, rows)
    queries = images(found, requests)
    arguments = [
        *(f"--index={index_path}", f"--dense={dense_path}", f"--encoder={encoder}"),
        *(f"--model_dir={found.sparse}", f"--dense_model_dir={found.dense}"),
        f"--num_threads={num_threads}",
    ]
    records = []
    with service(*arguments, log=folder / "serve.log") as (process, port):
        records += [one_client(port, queries, rerank) for rerank in (False, True)]
        records.append(many_clients(process, port, queries, clients, seconds))
    records.append(keras_and_dense(found, dense_path, queries[: min(requests, 60)], num_threads))
    common = {"rows": rows, "k": _K, "num_threads": num_threads}
    return [{**record, **common, "encoder": encoder} for record in records[:-1]] + [
        {**records[-1], **common, "encoder": "keras"}
    ]


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


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    rows: int = row_options.rows()
    encoder: str = fields.encoder()
    output: str | None = fields.output()
    run_dir: str = fields.run_dir()
    num_threads: int = fields.num_threads()
    work_dir: str | None = option(None, "Folder of index and dense rows; they stay.")
    requests: int = option(300, "Requests that are timed, one after the other.", lower=30)
    clients: int = option(16, "Clients at the same time.", lower=1)
    load_seconds: float = option(60.0, "Seconds of load.", lower=1)


def main(options: Options) -> None:
    """Measures what the options describe."""
    folder = app.writable_folder("work_dir", options.work_dir)
    output = app.writable_file("output", options.output, ".json") if options.output else None

    from sparse_embed.experiments.serving import demo

    found = demo.find(pathlib.Path(options.run_dir))
    if found is None:
        raise UsageError(f"--run_dir={options.run_dir}: expected what `make reproduce` leaves")
    measured = measure(
        found,
        folder,
        options.rows,
        options.requests,
        options.clients,
        options.load_seconds,
        options.num_threads,
        options.encoder,
    )
    print(table(measured))
    if output:
        records.save_all(output, measured)


if __name__ == "__main__":
    app.run(main, Options)
