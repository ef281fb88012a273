"""The real scripts on embeddings of a moment: records, what is measured again, mistakes."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse

from sparse_embed import retrieval
from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import embedding_files, records
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.methods import registry
from sparse_embed.retrieval import (
    flops_per_row,
    hash_codes,
    keep_largest,
    megaface_recall,
    suboptimality_ratio,
)

LABELS = np.repeat(np.arange(12, dtype=np.int32), 5)
DISTRACTORS = 3000


def run(script, *arguments):
    command = [sys.executable, "-m", f"sparse_embed.experiments.{script}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Probes and distractors: dense, with l1 and FLOPs penalty, as hash codes."""
    folder = tmp_path_factory.mktemp("embeddings")
    rng = np.random.default_rng(0)
    labels = np.concatenate([LABELS, np.full(DISTRACTORS, -1, np.int32)])
    centres = np.concatenate(
        [np.repeat(rng.normal(size=(12, 64)), 5, 0), rng.normal(size=(3000, 64))]
    )
    rows = {}
    for name, regularizer in (("dense", "none"), ("flops", "flops"), ("l1", "l1"), ("sdh", "none")):
        x = centres + 1.5 * rng.normal(size=centres.shape)
        note = {"train": {"objective": {"regularizer": regularizer, "regularizer_weight": 30.0}}}
        if name in ("flops", "l1"):
            x = np.maximum(x - 1.2, 0) + 1e-3 * (
                np.arange(64) == rng.integers(64, size=(len(x), 1))
            )
        x = unit(x)
        path = folder / name / f"identification.{'npy' if name == 'dense' else 'npz'}"
        path.parent.mkdir()
        vectors = {"dense": x.astype(np.float16), "sdh": hash_codes(x, 3)}.get(name)
        vectors = scipy.sparse.csr_array(x) if vectors is None else vectors
        embedding_files.save(path, Embeddings(vectors, labels, note))
        rows[name] = path, vectors
    return rows


@pytest.fixture(scope="module")
def folder(files, tmp_path_factory):
    """Records of everything, made by two calls."""
    folder = tmp_path_factory.mktemp("records")
    done = run("evaluate_megaface", *arguments(files, folder), "--only=dense,sparse,sdh,pca,lsh")
    assert done.returncode == 0, done.stderr
    done = run("evaluate_megaface", *arguments(files, folder))
    assert done.returncode == 0, done.stderr
    assert "dense-dims=64-seed=0: unchanged" in done.stdout
    assert "nlist=78" in done.stdout  # lists of IVF-PQ, for 3,060 rows
    return folder


def arguments(files, folder):
    return [
        f"--dense={files['dense'][0]}",
        f"--sparse={files['flops'][0]},{files['l1'][0]}",
        f"--sdh={files['sdh'][0]}",
        "--timed_queries=5",
        "--build_threads=1",
        f"--records={folder}",
    ]


def find(folder, method, **wanted):
    found = [
        record
        for record in records.load(folder, "megaface")
        if record["method"] == method and wanted.items() <= (record | record["setting"]).items()
    ]
    assert len(found) == 1
    return found[0]


def test_every_method_and_setting_has_a_record(folder):
    found = records.load(folder, "megaface")
    counts = {}
    for record in found:
        counts[record["method"]] = counts.get(record["method"], 0) + 1
        assert record["milliseconds_per_query"] > 0
        assert record["index_bytes"] > 0
        assert 0 < record["recall_at_1"] <= record["recall_at_100"] <= 1
        assert record["recall_at_1"] <= record["authors_recall_at_1"]
        arrays = records.load_arrays(folder, record)
        assert np.mean(arrays["ranks"] < 10) == record["recall_at_10"]
        assert arrays["hits"].sum() / arrays["mates"].sum() == record["recall_at_1"]
        np.testing.assert_array_equal(arrays["labels"], LABELS)
        np.testing.assert_array_equal(arrays["mates"], np.full(60, 4))
        np.testing.assert_array_equal(
            arrays["hits"], (arrays["ranks"].reshape(60, 4) == 0).sum(axis=1)
        )
        assert arrays["seconds"].shape == (5, 1)
        assert record["seed"] == 0
        assert record["other_load"] >= 0
    assert len({record["turns"] for record in found}) == 1  # the second call timed all of them
    # Without and with re-ranking: sparse, PCA of 48 dimensions, 6 numbers of bits, 50 and 78 lists.
    expected = {"flops": 2, "l1": 2, "pca": 2, "lsh": 12, "ivfpq": 4}
    assert counts == expected | {"dense": 1, "sdh": 1, "hnsw": 4}


def test_every_method_fits_a_database_of_few_rows(files, tmp_path):
    """65 rows: one list of IVF-PQ for all of them, shortlists longer than the database."""
    done = run("evaluate_megaface", *arguments(files, tmp_path), "--distractors=5")
    assert done.returncode == 0, done.stderr
    found = records.load(tmp_path, "megaface")
    methods = {record["method"] for record in found}
    assert methods == {"flops", "l1", "sdh", "dense", "pca", "lsh", "ivfpq", "hnsw"}
    assert {record["distractors"] for record in found} == {5}
    assert find(tmp_path, "ivfpq", reranked=True)["setting"]["nlist"] == 1
    # Among 65 rows, a shortlist of all re-ranked is exhaustive search.
    exhaustive = find(tmp_path, "dense")["recall_at_1"]
    for method in ("pca", "lsh", "ivfpq"):
        for record in found:
            if record["method"] == method and record["reranked"]:
                assert record["recall_at_1"] == exhaustive


def test_recalls_are_those_of_the_protocol(folder, files):
    dense = files["dense"][1].astype(np.float32)
    probes, distractors = dense[:60], dense[60:]
    record = find(folder, "dense")
    assert record["recall_at_1"] == megaface_recall(probes, LABELS, distractors)[1]
    assert record["flops_per_row"] == 64
    for name in ("flops", "l1"):
        vectors = files[name][1]
        plain = megaface_recall(vectors[:60], LABELS, vectors[60:], threshold=0.25)
        assert find(folder, name, reranked=False)["recall_at_10"] == plain[10]
        reranked = megaface_recall(
            vectors[:60],
            LABELS,
            vectors[60:],
            threshold=0.25,
            protocol="authors",
            dense_probes=probes,
            dense_distractors=distractors,
        )
        record = find(folder, name, reranked=True)
        assert record["authors_recall_at_1"] == pytest.approx(reranked[1])
        assert record["flops_per_row"] == pytest.approx(flops_per_row(vectors))
        assert record["suboptimality_ratio"] == pytest.approx(suboptimality_ratio(vectors))
        assert record["setting"]["weight"] == 30
    shares = (files["sdh"][1][:60] @ files["sdh"][1].T).toarray() > 0
    record = find(folder, "sdh")
    assert record["flops_per_row"] == pytest.approx(64 * shares.mean())
    # With all of 3 bits per bucket, what shares none is lost, and nothing else is.
    assert record["recall_at_1"] <= find(folder, "dense")["recall_at_1"]


def test_only_what_changed_is_measured_again(folder, files):
    path, vectors = files["l1"]
    before = path.read_bytes()
    stored = embedding_files.load(path)
    changed = vectors.copy()
    changed.data[0] *= 1.001
    embedding_files.save(path, Embeddings(changed, stored.labels, stored.provenance))
    try:
        done = run("evaluate_megaface", *arguments(files, folder), "--only=sparse,sdh,dense")
    finally:
        path.write_bytes(before)
    assert done.returncode == 0, done.stderr
    made = [line.split(":")[0] for line in done.stdout.splitlines() if "recall_at_1 " in line]
    assert len(made) == 2
    assert all("-l1-" in name for name in made)
    assert done.stdout.count(": unchanged") == 4
    lines = done.stdout.splitlines()[-len(records.load(folder)) - 1 :]
    assert lines[0].split()[:4] == ["method", "setting", "seed", "re-ranked"]
    (exhaustive,) = [line for line in lines if line.startswith("dense")]
    assert "1.0x" in exhaustive


def test_nothing_is_timed_twice_or_without_being_asked(files, tmp_path):
    flags = [*arguments(files, tmp_path), "--only=dense,sparse"]
    assert run("evaluate_megaface", *flags, "--timed_queries=0").returncode == 0
    assert not any("turns" in record for record in records.load(tmp_path))
    assert run("evaluate_megaface", *flags).returncode == 0
    turns = [record["turns"] for record in records.load(tmp_path)]
    assert run("evaluate_megaface", *flags).returncode == 0
    assert [record["turns"] for record in records.load(tmp_path)] == turns


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--only=none"], "--only=none: expected some of sparse, sdh"),
        (["--dense="], "--dense is not given"),
        (["--sparse=/absent.npz"], "--sparse=/absent.npz: expected a file that exists"),
        (["--sparse={dense}"], "expected sparse embeddings"),
        (["--sparse={short}"], "2999 distractors are not those of --dense"),
        (["--sparse={mixed}"], "and after them rows labelled -1, the distractors"),
        (["--dense={long}"], "expected embeddings of unit norm"),
    ],
)
def test_mistakes_cost_one_line(files, tmp_path, change, message):
    labels = np.concatenate([LABELS, np.full(DISTRACTORS, -1, np.int32)])
    vectors = files["flops"][1]
    names = {name: tmp_path / f"{name}.npz" for name in ("short", "mixed")}
    names |= {"long": tmp_path / "long.npy", "dense": files["dense"][0]}
    embedding_files.save(names["short"], Embeddings(vectors[:-1], labels[:-1], {}))
    embedding_files.save(names["mixed"], Embeddings(vectors, np.roll(labels, 1), {}))
    embedding_files.save(names["long"], Embeddings(2 * files["dense"][1], labels, {}))
    texts = [text.format(**names) for text in change]
    done = run("evaluate_megaface", *arguments(files, tmp_path / "records"), *texts)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_verification_of_embedded_pairs(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(200), 2)
    labels[1::4] += 1000  # every second pair is of two identities
    centres = rng.normal(size=(1200, 16))
    rows = unit(np.maximum(centres[labels] + 0.5 * rng.normal(size=(400, 16)), 0))
    config = {"objective": {"regularizer": "l1", "regularizer_weight": 0.5}}
    path = tmp_path / "run" / "easy.npz"
    path.parent.mkdir()
    embedding_files.save(path, Embeddings(scipy.sparse.csr_array(rows), labels, {"train": config}))
    flags = [f"--pairs={path}", "--data_name=pairs", f"--records={tmp_path}"]
    done = run("evaluate_verification", *flags)
    assert done.returncode == 0, done.stderr
    (record,) = records.load(tmp_path, "verification")
    scores = (rows[::2] * rows[1::2]).sum(axis=1)
    arrays = records.load_arrays(tmp_path, record)
    np.testing.assert_allclose(arrays["scores"], scores, atol=1e-6)
    np.testing.assert_array_equal(arrays["same"], labels[::2] == labels[1::2])
    assert 0.7 < record["accuracy"] < 1
    assert record["method"] == "l1"
    assert record["flops_per_row"] == pytest.approx(((rows != 0).mean(0) ** 2).sum())
    assert "unchanged" in run("evaluate_verification", *flags).stdout
    for wrong, message in (
        (["--pairs="], "expected one of --pairs and --pack"),
        (["--flip_sum"], "--flip_sum needs --pack"),
    ):
        done = run("evaluate_verification", *flags, *wrong)
        assert done.returncode == 2
        assert message in done.stderr
    assert json.loads((tmp_path / f"{record['name']}.json").read_text()) == record


def cut(vectors, k):
    """The k largest magnitudes of each row, scaled to unit norm."""
    x = vectors.toarray().astype(np.float64)
    kept = np.zeros(x.shape, bool)
    np.put_along_axis(kept, np.argsort(-np.abs(x), axis=1, kind="stable")[:, :k], True, axis=1)
    return scipy.sparse.csr_array(unit(np.where(kept, x, 0)))


def test_budgets_are_evaluated_beside_the_whole_embeddings(files, tmp_path):
    flags = [*arguments(files, tmp_path), "--only=sparse", "--timed_queries=0"]
    done = run("evaluate_megaface", *flags, "--keep=4,4:2,100")
    assert done.returncode == 0, done.stderr
    for name in ("flops", "l1"):
        vectors = files[name][1]
        for keep, queries in ((4, 4), (4, 2), (100, 100)):
            rows, probes = cut(vectors, keep), cut(vectors[:60], queries)
            setting = {"weight": 30.0, "run": name, "keep": keep}
            if queries != keep:
                setting["keep_queries"] = queries
            record = find(tmp_path, f"{name}_cut", reranked=False, setting=setting)
            expected = ((rows != 0).mean(axis=0) * (rows != 0).mean(axis=0)).sum()
            if queries != keep:
                expected = ((probes != 0).mean(axis=0) * (rows != 0).mean(axis=0)).sum()
            assert record["flops_per_row"] == pytest.approx(expected)
            assert record["activation_probability"] == pytest.approx((rows != 0).mean())
            assert record["suboptimality_ratio"] == pytest.approx(suboptimality_ratio(rows))
            adds = ((probes != 0).astype(int) @ (rows != 0).astype(int).T).sum() / 60
            assert record["multiply_adds_per_query"] == pytest.approx(adds)
            if queries == keep:
                plain = megaface_recall(rows[:60], LABELS, rows[60:], threshold=0.25)
                assert record["recall_at_10"] == plain[10]
        whole = find(tmp_path, name, reranked=True)
        assert "keep" not in whole["setting"]
        uncut = find(tmp_path, f"{name}_cut", reranked=True, keep=100)
        for metric in ("recall_at_1", "flops_per_row", "suboptimality_ratio", "dim"):
            assert uncut[metric] == pytest.approx(whole[metric])
    assert len(records.load(tmp_path)) == 16
    assert run("evaluate_megaface", *flags, "--keep=4").stdout.count(": unchanged") == 8


def test_indexes_of_budgets_are_built_when_needed(files, monkeypatch):
    """Budgets that cut rows alike share an index; until then only the probes are cut."""
    calls = []

    def spy(vectors, k, unit_norm):
        calls.append((vectors.shape[0], k))
        return keep_largest(vectors, k, unit_norm)

    monkeypatch.setattr(retrieval, "keep_largest", spy)
    path = files["dense"][0]
    dense = registry.load("dense", path, DISTRACTORS)
    budgets = ((4, 4), (4, 2))
    data = registry.Data(dense, path, {"sparse": [files["flops"][0]]}, 10, 0.25, 1, budgets)
    found = list(registry.sparse(data))
    assert [method.name for method in found] == ["flops", "flops_cut", "flops_cut"]
    assert calls == [(60, 4), (60, 2)]
    indexes = [method.build()[0] for method in found]
    assert calls[2:] == [(3060, 4)]
    assert indexes[1] is indexes[2]
    assert indexes[0].nbytes > indexes[1].nbytes


def test_a_file_that_was_cut_is_evaluated_as_such(files, tmp_path):
    """As `embed --keep` writes it; cut further it has the records of the whole rows cut so."""
    whole = embedding_files.load(files["flops"][0])
    path = tmp_path / "flops" / "identification.npz"
    path.parent.mkdir()
    few = keep_largest(whole.vectors, 6, unit_norm=True)
    note = {**whole.provenance, "keep": 6}
    embedding_files.save(path, Embeddings(few, whole.labels, note))
    data = {"dense": registry.load("dense", files["dense"][0], DISTRACTORS), "k": 10}
    shared = {"path": files["dense"][0], "threshold": 0.25, "num_threads": 1}
    given = registry.Data(**data, **shared, others={"sparse": [path]}, keep=((4, 4),))
    found = list(registry.sparse(given))
    assert [method.name for method in found] == ["flops_cut", "flops_cut"]
    assert [method.setting["keep"] for method in found] == [6, 4]
    again = dataclasses.replace(given, keep=((4, 6),))
    with pytest.raises(UsageError, match=r"--keep=4:6: .*identification.npz was cut to 6"):
        list(registry.sparse(again))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--keep=0"], "--keep=0: '0' is no budget: expected integers >= 1"),
        (["--keep=32,-1"], "--keep=32,-1: '-1' is no budget"),
        (["--keep=32:few"], "--keep=32:few: '32:few' is no budget"),
        (["--keep=32:8", "--sparse="], "--keep=32:8 needs --sparse"),
    ],
)
def test_bad_budgets_cost_one_line(files, tmp_path, change, message):
    done = run("evaluate_megaface", *arguments(files, tmp_path), *change)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
