"""The paper's CIFAR-100 metrics against loops over all images."""

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.evaluation.cifar100 import evaluate


def parts(sparse):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 10))
    found = []
    for count in (120, 40):
        labels = rng.integers(0, 4, count)
        rows = centres[labels] + 0.9 * rng.normal(size=(count, 10))
        if sparse:
            rows = np.sign(rows) * np.maximum(np.abs(rows) - 0.5, 0)
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        found.append((rows, labels))
    return found


def precision(ranked, labels, label, k):
    return np.mean([labels[j] == label for j in ranked[:k]])


@pytest.mark.parametrize("sparse", [False, True])
def test_against_brute_force(sparse):
    (train, train_labels), (test, test_labels) = parts(sparse)
    kind = scipy.sparse.csr_array if sparse else np.asarray
    metrics, arrays = evaluate(
        Embeddings(kind(train), train_labels, {}), Embeddings(kind(test), test_labels, {})
    )
    for k in (4, 16):
        among_train, among_test = [], []
        for i, label in enumerate(test_labels):
            ranked = sorted(range(120), key=lambda j: -(train[j] @ test[i]))
            among_train.append(precision(ranked, train_labels, label, k))
            ranked = sorted(set(range(40)) - {i}, key=lambda j: -(test[j] @ test[i]))
            among_test.append(precision(ranked, test_labels, label, k))
        assert metrics[f"precision_at_{k}_train"] == pytest.approx(np.mean(among_train))
        assert metrics[f"precision_at_{k}_test"] == pytest.approx(np.mean(among_test))
        assert arrays["test_hits"][:, :k].mean() == pytest.approx(np.mean(among_test))
    p = (test != 0).mean(axis=0)
    assert metrics["flops_per_row"] == pytest.approx(sum(p**2) if sparse else 10)
    if sparse:
        assert metrics["suboptimality_ratio"] == pytest.approx(sum(p**2) / (10 * p.mean() ** 2))


@pytest.mark.parametrize("bits", [1, 3])
def test_hash_buckets_against_brute_force(bits):
    (train, train_labels), (test, test_labels) = parts(sparse=False)
    metrics, _ = evaluate(
        Embeddings(train, train_labels, {}), Embeddings(test, test_labels, {}), active_bits=bits
    )
    hits, candidates = [], 0
    for row, label in zip(test, test_labels, strict=True):
        own = set(np.argsort(-row)[:bits])
        bucket = [j for j in range(120) if own & set(np.argsort(-train[j])[:bits])]
        candidates += len(bucket) / 120 / len(test)
        ranked = sorted(bucket, key=lambda j: -(train[j] @ row))[:4]
        hits.append(sum(train_labels[j] == label for j in ranked) / 4)
    assert metrics["precision_at_4_train"] == pytest.approx(np.mean(hits))
    assert metrics["flops_per_row"] == pytest.approx(10 * candidates)
