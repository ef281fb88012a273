"""Precision of a CIFAR-100 encoder: test images among the training images, and among each other.

    python -m sparse_embed.experiments.evaluate_cifar100 --model_dir=runs/cifar100_flops \
        --records=runs/records

This is the table of the paper's appendix "Cifar-100 results": precision@4 and @16 without
re-ranking, and multiply-adds per row. Of an encoder of Sparse Deep Hashing (--loss=sdh), rows that
share a hash bucket with the query are ordered by their dense embeddings, and the multiply-adds are
those.
"""

import pathlib
from typing import Any

import numpy as np
from absl import flags

from sparse_embed import retrieval
from sparse_embed.experiments import records
from sparse_embed.experiments.embed import embed_part
from sparse_embed.experiments.embeddings import Embeddings
from sparse_embed.experiments.runs import ENCODER, RECORD, load_encoder, load_record
from sparse_embed.flags import app
from sparse_embed.flags.output import MODEL_DIR, RECORDS
from sparse_embed.retrieval.metrics import drop_self

KS = (4, 16)


def evaluate(
    train: Embeddings, test: Embeddings, active_bits: int | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measures how many of the nearest images are of the query's class.

    Args:
        train: embeddings of the training images.
        test: embeddings of the test images, which are the queries.
        active_bits: None, or bits per hash: then searches hash buckets.

    Returns:
        Figures (`precision_at_4_train`, `precision_at_16_train` among the training images,
        `precision_at_4_test`, ... among the other test images, `dim`, `flops_per_row` and, of
        sparse embeddings, `activation_probability`, `suboptimality_ratio`), and the raw results:
        of each of the 16 results of each query whether it is of its class.
    """
    figures: dict[str, Any] = {"queries": len(test.labels), "dim": int(test.vectors.shape[1])}
    arrays = {}
    for name, database in (("train", train), ("test", test)):
        extra = 1 if database is test else 0  # each query finds itself, and that is dropped
        scores, ids = _search(database, test, max(KS) + extra, active_bits)
        if extra:
            scores, ids = drop_self(scores, ids)
        for k in KS:
            precision = retrieval.precision_at_k(ids, test.labels, database.labels, k)
            figures[f"precision_at_{k}_{name}"] = precision
        arrays[f"{name}_hits"] = (database.labels[ids] == test.labels[:, None]) & (ids >= 0)
    figures["flops_per_row"] = float(figures["dim"])
    if active_bits is not None:
        codes, queries = (retrieval.hash_codes(part.vectors, active_bits) for part in (train, test))
        candidates = retrieval.SDHSearch(codes).num_candidates(queries).mean() / codes.shape[0]
        figures["flops_per_row"] *= float(candidates)
    elif test.is_sparse:
        probability = retrieval.activation_probability(test.vectors)
        figures["flops_per_row"] = retrieval.flops_per_row(test.vectors)
        figures["activation_probability"] = float(probability.mean())
        figures["suboptimality_ratio"] = retrieval.suboptimality_ratio(test.vectors)
        arrays["activation_probabilities"] = probability
    return figures, arrays


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


def evaluate_run(model_dir: pathlib.Path, data_dir: str | None, folder: pathlib.Path) -> None:
    """Embeds both parts with the encoder of a run, evaluates them and updates their record."""
    config = load_record(model_dir)["config"]
    if config["data"]["dataset"] != "cifar100":
        raise app.UsageError(f"--model_dir={model_dir}: expected a run with --dataset=cifar100")
    objective = config["objective"]
    method = objective["regularizer"].replace("none", "dense")
    setting: dict[str, Any] = {"run": model_dir.name}
    active_bits = None
    if objective["loss"] == "sdh":
        method, active_bits = "sdh", objective["active_bits"]
        setting["active_bits"] = active_bits
    elif method != "dense":
        setting["weight"] = objective["regularizer_weight"]
    key = {
        "experiment": "cifar100",
        "data": "cifar100",
        "method": method,
        "setting": setting,
        "flags": {"train": config},
    }

    def make() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        encoder = load_encoder(model_dir)
        train, test = (
            embed_part(encoder, config, data_dir, split, views=1, count=0)[0]
            for split in ("train", "test")
        )
        return evaluate(train, test, active_bits)

    parts = [f"{name}={value}" for name, value in setting.items()]
    name = records.record_name("cifar100", method, *parts)
    records.update(folder, name, key, [model_dir / ENCODER], make)


def main() -> None:
    """Reads the flags and evaluates."""
    model_dir = app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD)
    folder = app.writable_folder("records", RECORDS.value)
    evaluate_run(model_dir, flags.FLAGS.data_dir, folder)


if __name__ == "__main__":
    app.run(main)
