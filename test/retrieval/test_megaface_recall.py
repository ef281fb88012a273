"""Identification against brute force: every pair of probe and mate has a database of its own."""

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.retrieval import DenseSearch, Reranker, SparseIndex
from sparse_embed.retrieval.megaface import (
    NOT_FOUND,
    identification_ranks,
    megaface_recall,
    recall_of_ranks,
)
from sparse_embed.retrieval.sdh import SDHSearch, hash_codes

# Identities 7 and 40 have three images, 3 has two, 9 one: the mate of nobody.
LABELS = np.array([7, 3, 7, 40, 9, 40, 3, 7, 40])


def unit(x):
    return (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def tied_rows(rng, count, dims):
    """Rows of zeros and ones with two ones: products of 0, 1/2 and 1 alone, so ties abound."""
    x = np.zeros((count, dims))
    for row in x:
        row[rng.choice(dims, 2, replace=False)] = 1
    return unit(x)


def brute_force(probes, labels, distractors, shortlist, threshold, dense=None):
    """{(probe, mate): rank or None}, one database of distractors and mate per pair."""
    ranks = {}
    for i, label in enumerate(labels):
        for j in np.flatnonzero(labels == label):
            if i == j:
                continue
            database = np.concatenate([probes[[j]], distractors])
            scores = database @ probes[i]
            listed = sorted(range(len(scores)), key=lambda row: (-scores[row], row))
            listed = [row for row in listed if scores[row] >= threshold][:shortlist]
            if dense is not None:
                scores = np.concatenate([dense[0][[j]], dense[1]]) @ dense[0][i]
            ranks[i, j] = sum(scores[row] > scores[0] for row in listed) if 0 in listed else None
    return ranks


def check(pairs, expected, ranks=None):
    ranks = pairs.ranks if ranks is None else ranks
    found = dict(zip(zip(pairs.probes, pairs.mates, strict=True), ranks, strict=True))
    assert found == {pair: NOT_FOUND if rank is None else rank for pair, rank in expected.items()}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("shortlist", "threshold"), [(1000, None), (9, None), (12, 0.4), (1, 0.6)])
def test_ranks_with_ties_against_brute_force(seed, sparse, shortlist, threshold):
    rng = np.random.default_rng(seed)
    rows = tied_rows(rng, 60, 8)
    dense = unit(rng.normal(size=(60, 5)))
    count = len(LABELS)
    index = SparseIndex.build(scipy.sparse.csr_array(rows)) if sparse else DenseSearch(rows)
    probes = scipy.sparse.csr_array(rows[:count]) if sparse else rows[:count]
    settings = {"shortlist": shortlist, "threshold": threshold, "without_mate": "skip"}
    lowest = -np.inf if threshold is None else threshold
    expected = brute_force(rows[:count], LABELS, rows[count:], shortlist, lowest)
    pairs = identification_ranks(
        index, probes, LABELS, reranker=Reranker(dense), dense_probes=dense[:count], **settings
    )
    check(pairs, expected)
    dense_parts = dense[:count], dense[count:]
    expected = brute_force(rows[:count], LABELS, rows[count:], shortlist, lowest, dense_parts)
    check(pairs, expected, pairs.reranked)


def test_many_images_of_others_do_not_crowd_out_the_distractors():
    """90 probes are all nearer to each other than to any distractor, which still get their turn."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(140, 6))
    rows[:90] = 20 * rows[0] + rng.normal(size=(90, 6))
    rows = unit(rows)
    labels = np.arange(90) // 2
    pairs = identification_ranks(DenseSearch(rows), rows[:90], labels, shortlist=3)
    check(pairs, brute_force(rows[:90], labels, rows[90:], 3, -np.inf))


def test_buckets_of_hashes_have_no_longest_shortlist():
    rng = np.random.default_rng(1)
    dense = unit(rng.normal(size=(80, 10)))
    codes = hash_codes(dense, 2)
    count = len(LABELS)
    pairs = identification_ranks(
        SDHSearch(codes),
        codes[:count],
        LABELS,
        shortlist=None,
        reranker=Reranker(dense),
        dense_probes=dense[:count],
        without_mate="skip",
    )
    bits = codes.toarray()
    parts = dense[:count], dense[count:]
    expected = brute_force(bits[:count], LABELS, bits[count:], 1000, 1, parts)
    check(pairs, expected, pairs.reranked)
    assert NOT_FOUND in pairs.reranked


def test_two_protocols_by_hand():
    """One axis per identity; scores with the probe are the first coordinates.

    Identity A has three images with A1.A2 = 0.8, A1.A3 = 0.6, A2.A3 = 0.96; identity B two, equal.
    The distractors are one at 0.7 from A1 and two rows that meet nobody. From A1: A2 is first, A3
    has the distractor above it. From A2 (0.8 * 0.7 = 0.56 with the distractor, as it lies in the
    plane of A1 and the third axis): both first. From A3 (0.42): both first. B: first.
    Official recall@1: 7 of 8 pairs. Authors': A1 finds itself and A2, 2 of 3, all others 1:
    (2/3 + 4) / 5.
    """
    probes = np.array(
        [[1, 0, 0, 0], [0.8, 0.6, 0, 0], [0.6, 0.8, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]]
    )
    distractors = np.array([[0.7, 0, np.sqrt(0.51), 0], [0, 0, 1, 0], [0, 0, -1, 0]])
    labels = np.array([5, 5, 5, 2, 2])
    official = megaface_recall(probes, labels, distractors, ks=(1, 2))
    authors = megaface_recall(probes, labels, distractors, ks=(1, 2), protocol="authors")
    assert official == {1: pytest.approx(7 / 8), 2: 1.0}
    assert authors == {1: pytest.approx((2 / 3 + 4) / 5), 2: 1.0}


@pytest.mark.parametrize("sparse", [False, True])
def test_recall_of_embeddings_against_brute_force(sparse):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 12, 50)
    labels = labels[np.isin(labels, np.flatnonzero(np.bincount(labels) > 1))]
    centres = rng.normal(size=(12, 16))
    probes = unit(np.maximum(centres[labels] + rng.normal(size=(len(labels), 16)), 0))
    distractors = unit(np.maximum(rng.normal(size=(300, 16)), 0))
    kind = scipy.sparse.csr_matrix if sparse else np.asarray
    dense = (
        unit(rng.normal(size=(12, 8))[labels] + 0.5 * rng.normal(size=(len(labels), 8))),
        unit(rng.normal(size=(300, 8))),
    )
    noisy = rng.random(len(labels)) < 0.1, rng.random(300) < 0.3
    kept = ~noisy[0], ~noisy[1]
    assert noisy[0].any()
    ranks = brute_force(
        probes[kept[0]],
        labels[kept[0]],
        distractors[kept[1]],
        100,
        0.25,
        (dense[0][kept[0]], dense[1][kept[1]]),
    )
    recalls = {}
    for protocol in ("official", "authors"):
        recalls[protocol] = megaface_recall(
            kind(probes),
            labels,
            kind(distractors),
            (1, 10, 50),
            protocol,
            shortlist=100,
            threshold=0.25,
            dense_probes=dense[0],
            dense_distractors=dense[1],
            noisy_probes=noisy[0],
            noisy_distractors=noisy[1],
            without_mate="skip",
        )
    for k in (1, 10, 50):
        hits = {pair: rank is not None and rank < k for pair, rank in ranks.items()}
        assert recalls["official"][k] == pytest.approx(sum(hits.values()) / len(hits))
        per_probe = []
        for probe in {pair[0] for pair in hits}:
            own = [hit for pair, hit in hits.items() if pair[0] == probe]
            per_probe.append((1 + sum(own)) / (1 + len(own)))
        assert recalls["authors"][k] == pytest.approx(np.mean(per_probe))
        assert 0 < recalls["official"][k] != recalls["authors"][k]


def test_with_equally_many_mates_the_protocols_differ_by_the_probe_alone():
    """m mates each: authors = (1 + m * official) / (1 + m), for every k."""
    rng = np.random.default_rng(4)
    rows = unit(rng.normal(size=(500, 3)))
    labels = np.repeat(np.arange(20), 5)
    pairs = identification_ranks(DenseSearch(rows), rows[:100], labels)
    official = recall_of_ranks(pairs, range(1, 400))
    authors = recall_of_ranks(pairs, range(1, 400), "authors")
    assert official[1] < 0.1 < official[300]
    for k, recall in official.items():
        assert authors[k] == pytest.approx((1 + 4 * recall) / 5)


GOOD = {
    "probes": np.eye(4, 8),
    "labels": np.array([0, 0, 1, 1]),
    "distractors": np.eye(8)[4:],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(3, int)}, r"labels of shape \(3,\): expected one per row of probes"),
        ({"labels": np.array([0, 0, 0, 6])}, r"probe 3 \(identity 6\) has no mate"),
        ({"labels": np.arange(4), "without_mate": "skip"}, "no probe has a mate"),
        ({"labels": np.arange(4), "without_mate": "drop"}, "without_mate='drop': expected one of"),
        ({"distractors": np.eye(9)[4:]}, r"probes has shape \(4, 8\) and distractors \(5, 9\)"),
        ({"distractors": np.eye(8)[:0]}, "distractors has no rows"),
        ({"distractors": scipy.sparse.csr_array(np.eye(8))}, "both sparse or both dense"),
        ({"distractors": 3 * np.eye(8)[4:]}, "row 4 has norm 3: expected embeddings of unit norm"),
        ({"probes": np.zeros((4, 8))}, "row 0 has norm 0"),
        ({"probes": np.full((4, 8), np.nan)}, "row 0 has norm nan"),
        ({"ks": (1, 2000)}, r"ks=\(1, 2000\): expected at most shortlist=1000"),
        ({"ks": (0,)}, "ks=0: expected an integer >= 1"),
        ({"protocol": "mine"}, "protocol='mine': expected one of official, authors"),
        ({"dense_probes": np.eye(4)}, "dense_probes, dense_distractors: expected both or neither"),
        (
            {"dense_probes": np.eye(4), "dense_distractors": np.eye(3, 4)},
            "dense_distractors has 3 rows: expected 4",
        ),
        ({"noisy_probes": np.zeros(2, bool)}, r"noisy_probes has dtype bool and shape \(2,\)"),
        ({"noisy_distractors": np.zeros(4)}, "noisy_distractors has dtype float64"),
    ],
)
def test_mistakes_are_named(change, message):
    assert megaface_recall(**GOOD)[1] == 1.0
    with pytest.raises(ValueError, match=message):
        megaface_recall(**(GOOD | change))


def test_zero_rows_are_never_found_where_there_is_a_threshold():
    probes = np.eye(4, 8)
    probes[1] = 0
    recall = megaface_recall(probes, GOOD["labels"], GOOD["distractors"], threshold=0.25)
    assert recall[1] == 0
    probes[2] = probes[3]
    recall = megaface_recall(probes, GOOD["labels"], GOOD["distractors"], threshold=0.25)
    assert recall[1] == 0.5


def test_an_index_without_distractors_is_refused():
    rows = np.eye(4, dtype=np.float32)
    with pytest.raises(ValueError, match="index has 4 rows and probes 4"):
        identification_ranks(DenseSearch(rows), rows, GOOD["labels"])
    with pytest.raises(ValueError, match="reranker has 3 rows: expected 4"):
        identification_ranks(
            DenseSearch(rows),
            rows[:2],
            np.zeros(2),
            reranker=Reranker(rows[:3]),
            dense_probes=rows[:2],
        )
    with pytest.raises(ValueError, match="reranker, dense_probes: expected both or neither"):
        identification_ranks(DenseSearch(rows), rows[:2], np.zeros(2), dense_probes=rows[:2])
    pairs = identification_ranks(DenseSearch(rows), rows[:2], np.zeros(2))
    with pytest.raises(ValueError, match="pairs were not re-ranked"):
        recall_of_ranks(pairs, reranked=True)
