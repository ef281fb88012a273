"""Precision on CIFAR-100 (the paper's appendix "Cifar-100 results"), as records."""

import pathlib

import numpy as np

from sparse_embed import retrieval
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.embedding import embed_part
from sparse_embed.retrieval.metrics import drop_self

CURVE = (
    "step",
    "seconds",
    "loss",
    "regularizer_weight",
    "sparsity_flops_per_row",
    "evaluation_flops_per_row",
    "recall_at_1",
)
KS = (4, 16)


def evaluate(
    train: Embeddings, test: Embeddings, active_bits: int | None = None
) -> tuple[Record, dict[str, np.ndarray]]:
    """Measures how many of the nearest images are of the query's class.

    Args:
        train: embeddings of the training images.
        test: embeddings of the test images, which are the queries.
        active_bits: bits per hash code, to search hash buckets; else None.

    Returns:
        Metrics (`precision_at_4_train`, `precision_at_16_train` among the training images,
        `precision_at_4_test`, ... among the other test images, `dim`, `flops_per_row` and, for
        sparse embeddings, `activation_probability`, `suboptimality_ratio`), and the raw results:
        whether each of the 16 results of a query is of its class.
    """
    metrics: Record = {"queries": len(test.labels), "dim": int(test.vectors.shape[1])}
    arrays = {}
    for name, database in (("train", train), ("test", test)):
        extra = 1 if database is test else 0  # each query finds itself, which is dropped
        scores, ids = _search(database, test, max(KS) + extra, active_bits)
        if extra:
            scores, ids = drop_self(scores, ids)
        for k in KS:
            precision = retrieval.precision_at_k(ids, test.labels, database.labels, k)
            metrics[f"precision_at_{k}_{name}"] = precision
        arrays[f"{name}_hits"] = (database.labels[ids] == test.labels[:, None]) & (ids >= 0)
    metrics["flops_per_row"] = float(metrics["dim"])
    if active_bits is not None:
        codes, queries = (retrieval.hash_codes(part.vectors, active_bits) for part in (train, test))
        candidates = retrieval.SDHSearch(codes).num_candidates(queries).mean() / codes.shape[0]
        metrics["flops_per_row"] *= float(candidates)
    elif test.is_sparse:
        metrics |= retrieval.sparsity_metrics(test.vectors)
        arrays["activation_probabilities"] = retrieval.activation_probability(test.vectors)
    return metrics, arrays


def _search(
    database: Embeddings, queries: Embeddings, k: int, active_bits: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest rows of each query: exact, or the nearest in its hash buckets."""
    if active_bits is not None:
        codes, query_codes = (
            retrieval.hash_codes(part.vectors, active_bits) for part in (database, queries)
        )
        two_stage = retrieval.TwoStage(
            retrieval.SDHSearch(codes), retrieval.Reranker(database.vectors)
        )
        blocks = [slice(start, start + 256) for start in range(0, len(queries.labels), 256)]
        found = [
            two_stage.search(query_codes[some], queries.vectors[some], k, shortlist=None)
            for some in blocks  # all candidates of a block are in memory at once
        ]
        return np.concatenate([part[0] for part in found]), np.concatenate([p[1] for p in found])
    if database.is_sparse:
        return retrieval.SparseIndex.build(database.vectors).search(queries.vectors, k)
    return retrieval.DenseSearch(database.vectors).search(queries.vectors, k)


def evaluate_run(
    run: Run,
    data_dir: str | None,
    folder: pathlib.Path,
    model: str | None = None,
    images: int | None = None,
) -> None:
    """Updates the record of every encoder of a run.

    A record's `model` is what the run is in the paper's table, and it holds the flags, curve and
    seconds of the training run.

    Args:
        run: the run, of CIFAR-100 or of features of its images.
        data_dir: where the data set is now; None for where it was.
        folder: folder of the records.
        model: see above; None for the name of the run.
        images: how many training and test images to take, the first ones; None for all.
    """
    for snapshot in run.snapshots:
        train = snapshot.config.to_dict()
        train["data"]["data_dir"] = None  # the location of the data decides nothing
        if train["model"]["warm_start"]:
            train["model"]["warm_start"] = pathlib.Path(train["model"]["warm_start"]).name
        curves = snapshot.record["curves"]
        key = {
            "experiment": "cifar100",
            "data": "cifar100",
            "method": snapshot.method,
            "setting": snapshot.setting,
            "seed": run.seed,
            "model": model or run.name,
            "flags": {"train": train, **({"images": images} if images else {})},
            "train_seconds": snapshot.record["seconds"],
            "weights_crc32": snapshot.record["weights_crc32"],
            "curve": [{name: row[name] for name in CURVE if name in row} for row in curves],
        }

        def make(snapshot: Run = snapshot) -> tuple[Record, dict[str, np.ndarray]]:
            encoder = snapshot.encoder()
            train, test = (
                embed_part(snapshot, encoder, data_dir, split, most=images)[0]
                for split in ("train", "test")
            )
            bits = snapshot.config.objective.active_bits if snapshot.config.makes_codes else None
            return evaluate(train, test, bits)

        records.update(folder, key, [snapshot.encoder_file], make, key["model"])
