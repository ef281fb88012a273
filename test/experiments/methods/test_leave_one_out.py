import json
import time

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.experiments import search
from sparse_embed.experiments.core import records as record_files
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.methods import leave_one_out


@pytest.fixture(scope="module")
def data():
    """120 rows of 12 classes: sparse ones that are often wrong, dense ones mostly right."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)

    def unit(noise):
        centres = rng.normal(size=(12, 16))
        rows = centres[labels] + noise * rng.normal(size=(120, 16))
        return rows

    sparse = np.maximum(unit(1.0) - 0.5, 0)
    dense = unit(0.5)
    sparse[7] = 0  # a row without active dimensions finds nothing and is found by nobody
    sparse /= np.maximum(np.linalg.norm(sparse, axis=1, keepdims=True), 1e-9)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    csr = scipy.sparse.csr_array(sparse.astype(np.float32))
    return Embeddings(csr, labels, {}), Embeddings(dense.astype(np.float32), labels, {})


def test_leave_one_out_against_plain_numpy(data):
    sparse, dense = data
    k, threshold = 5, 0.25
    records = leave_one_out.evaluate(sparse, None, dense, None, k, threshold)
    labels = sparse.labels
    rows = sparse.vectors.toarray()
    scores, dense_scores = rows @ rows.T, dense.vectors @ dense.vectors.T
    hits = {"sparse": 0, "sparse, re-ranked": 0, "exhaustive dense": 0}
    for i in range(120):
        ranked = [j for j in np.argsort(-scores[i], kind="stable") if j != i]
        hits["sparse"] += labels[ranked[0]] == labels[i]
        # The query itself takes a place of the shortlist too, if it scores at all.
        shortlist = [j for j in np.argsort(-scores[i], kind="stable") if scores[i, j] >= threshold]
        shortlist = [j for j in shortlist[: k + 1] if j != i][:k]
        if shortlist:
            hits["sparse, re-ranked"] += (
                labels[max(shortlist, key=lambda j: dense_scores[i, j])] == labels[i]
            )
        hits["exhaustive dense"] += (
            labels[max(set(range(120)) - {i}, key=lambda j: dense_scores[i, j])] == labels[i]
        )
    assert 0 < hits["sparse"] < hits["exhaustive dense"]
    for record in records:
        assert record["recall_at_1"] == pytest.approx(hits[record["method"]] / 120)
    active = rows != 0
    assert records[0]["flops_per_row"] == pytest.approx((active.mean(0) ** 2).sum())
    ratio = (active.mean(0) ** 2).sum() / (16 * active.mean() ** 2)
    assert records[0]["suboptimality_ratio"] == pytest.approx(ratio)
    assert records[2]["flops_per_row"] == 16


def test_separate_queries_against_plain_numpy(data):
    sparse, dense = data
    rows = np.arange(120)
    probes, gallery = rows % 10 == 0, rows % 10 != 0

    def part(embeddings, mask):
        return Embeddings(embeddings.vectors[mask], embeddings.labels[mask], {})

    records = leave_one_out.evaluate(
        part(sparse, gallery), part(sparse, probes), part(dense, gallery), part(dense, probes), 120
    )
    dense_scores = dense.vectors[probes] @ dense.vectors[gallery].T
    found = dense.labels[gallery][dense_scores.argmax(axis=1)]
    expected = (found == dense.labels[probes]).mean()
    assert records[2]["recall_at_1"] == pytest.approx(expected)
    active = sparse.vectors.toarray() != 0
    cost = (active[probes].mean(0) * active[gallery].mean(0)).sum()
    assert records[0]["flops_per_row"] == pytest.approx(cost)


def test_table_shows_every_method_and_records_are_kept(data, tmp_path):
    records = leave_one_out.evaluate(*data[:1], None, data[1])
    text = search.table(records)
    for record in records:
        assert record["method"] in text
        assert f"{record['recall_at_1']:.4f}" in text
    assert len({len(line) for line in text.splitlines()}) == 1
    path = tmp_path / "records.json"
    record_files.save_all(path, records, settings={"k": 5})
    saved = json.loads(path.read_text())
    assert saved["settings"] == {"k": 5}
    assert [record["method"] for record in saved["records"]] == [r["method"] for r in records]


def test_milliseconds_are_of_a_thousand_to_the_second(data, monkeypatch):
    """Each call of the search sleeps for a twentieth of a second: that is a lower bound."""
    search = leave_one_out.retrieval.SparseIndex.search

    def slow(*arguments, **options):
        time.sleep(0.05)
        return search(*arguments, **options)

    monkeypatch.setattr(leave_one_out.retrieval.SparseIndex, "search", slow)
    (record,) = leave_one_out.evaluate(data[0])
    assert record["milliseconds_per_query"] >= 50 / len(data[0].labels)
