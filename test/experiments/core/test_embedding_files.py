import json
import os
import signal

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.embedding_files import Embeddings

LABELS = np.array([3, 1, 2], np.int32)
NOTE = {"split": "test", "train": {"seed": 0}}
DENSE = np.array([[0, 1, 0, 0], [0, 0, 0, 0], [0.6, 0, -0.8, 0]], np.float32)


def test_sparse_round_trip_and_scipy_reads_it_too(tmp_path):
    path = tmp_path / "sparse.npz"
    embedding_files.save(path, Embeddings(scipy.sparse.csr_array(DENSE), LABELS, NOTE))
    found = embedding_files.load(path)
    assert found.is_sparse
    assert found.vectors.dtype == np.float32
    np.testing.assert_array_equal(found.vectors.toarray(), DENSE)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert found.provenance == NOTE
    np.testing.assert_array_equal(scipy.sparse.load_npz(path).toarray(), DENSE)


def test_dense_round_trip_is_memory_mapped(tmp_path):
    path = tmp_path / "dense.npy"
    embedding_files.save(path, Embeddings(DENSE, LABELS, NOTE))
    found = embedding_files.load(path)
    assert not found.is_sparse
    assert isinstance(found.vectors, np.memmap)
    np.testing.assert_array_equal(found.vectors, DENSE)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert found.provenance == NOTE


@pytest.mark.parametrize("kept", [[".npy"], [".labels.npy"], [".json"], [".npy", ".json"]])
def test_files_of_two_savings_are_not_mixed(tmp_path, kept):
    """As a kill between two renames would leave them."""
    path = tmp_path / "dense.npy"
    embedding_files.save(path, Embeddings(DENSE, LABELS, NOTE))
    before = {suffix: path.with_suffix(suffix).read_bytes() for suffix in kept}
    embedding_files.save(path, Embeddings(DENSE[::-1].copy(), LABELS[::-1].copy(), NOTE))
    for suffix, content in before.items():
        path.with_suffix(suffix).write_bytes(content)
    with pytest.raises(DataError, match=r"dense\.npy: expected the rows of .*dense\.labels\.npy"):
        embedding_files.load(path)


@pytest.mark.parametrize("killed_before", [1, 2, 3])
def test_a_kill_between_two_renames_loses_nothing(tmp_path, killed_before):
    path = tmp_path / "dense.npy"
    embedding_files.save(path, Embeddings(DENSE, LABELS, NOTE))
    child = os.fork()
    if child == 0:
        calls, replace = [], os.replace

        def renamed(source, target):
            calls.append(target)
            if len(calls) == killed_before:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        os.replace = renamed
        embedding_files.save(path, Embeddings(DENSE[::-1].copy(), LABELS[::-1].copy(), {"new": 1}))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    found = embedding_files.load(path)
    is_new = killed_before > 1
    np.testing.assert_array_equal(found.vectors, DENSE[::-1] if is_new else DENSE)
    np.testing.assert_array_equal(found.labels, LABELS[::-1] if is_new else LABELS)
    assert found.provenance == ({"new": 1} if is_new else NOTE)


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"expected a \.npy file for dense embeddings"):
        embedding_files.save(tmp_path / "x.npz", Embeddings(DENSE, LABELS, NOTE))
    with pytest.raises(ValueError, match=r"labels of shape \(2,\)"):
        embedding_files.save(tmp_path / "x.npy", Embeddings(DENSE, LABELS[:2], NOTE))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.npz", "x.npy"])
@pytest.mark.parametrize("content", [b"", b"not numpy", b"PK\x03\x04 torn"])
def test_foreign_file_is_refused_by_name(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: expected an embedding file"):
        embedding_files.load(path)


def test_truncated_file_is_refused(tmp_path):
    path = tmp_path / "sparse.npz"
    embedding_files.save(path, Embeddings(scipy.sparse.csr_array(DENSE), LABELS, NOTE))
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="expected an embedding file"):
            embedding_files.load(path)


def sparse_arrays(**changes):
    csr = scipy.sparse.csr_array(DENSE)
    arrays = {name: getattr(csr, name) for name in ("data", "indices", "indptr", "shape")}
    arrays |= {"labels": LABELS, "provenance": json.dumps(NOTE), **changes}
    return {name: value for name, value in arrays.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": LABELS[:2]}, r"expected 3 labels, .* got \(2,\) of int32"),
        ({"labels": LABELS[:, None]}, r"expected 3 labels, .* got \(3, 1\)"),
        ({"labels": LABELS * np.nan}, "got .* of float64"),
        ({"labels": None}, "'labels' is not among"),
        ({"data": np.array([1, np.nan, 2], np.float32)}, "a value that is NaN, infinite"),
        ({"data": np.array([1, np.inf, 2], np.float32)}, "a value that is NaN, infinite"),
        ({"data": np.array([1, 2, 3], np.complex64)}, "it holds arrays of .*complex64"),
        ({"data": np.array(["1", "2", "3"])}, "it holds arrays of .*<U1"),
        ({"data": np.array([1.0, None, 3])}, "Python objects"),
        ({"indices": np.array([1, 0, 7], np.int32)}, "expected an embedding file"),
        ({"indices": np.array([1, -1, 2], np.int32)}, "expected an embedding file"),
        ({"indices": np.array([1.0, 0.0, 2.0])}, "it holds arrays of"),
        ({"indptr": np.array([0, 1, 9, 3], np.int32)}, "expected an embedding file"),
        ({"indptr": np.array([0, 1, 3], np.int32)}, "expected an embedding file"),
        ({"indptr": np.array([0, 2, 3, 0], np.int32)}, "expected an embedding file"),
        ({"data": np.array([1, 1e300, 2])}, "beyond float32"),
        (
            # Python adds up what stands twice in a row.
            {
                "data": np.full(3, 3e38, np.float32),
                "indices": np.zeros(3, np.int32),
                "indptr": np.array([0, 3, 3, 3], np.int32),
            },
            "beyond float32",
        ),
        ({"shape": np.array([3, 4, 5])}, r"shape \(3, 4, 5\)"),
        ({"shape": np.array([-3, 4])}, "expected an embedding file"),
        ({"shape": np.array([3, 10**12])}, "1 to 16777216 columns"),
        ({"provenance": "{"}, "expected an embedding file"),
        ({"provenance": "[1]"}, "no JSON object"),
        ({"provenance": '{"train": {"model": 3}}'}, "ModelConfig is a mapping, not int"),
        ({"provenance": '{"keep": "few"}'}, "keep is 'few', no integer >= 1"),
        ({"provenance": np.array(["{}", "{}"])}, "expected an embedding file"),
    ],
)
def test_sparse_rows_that_do_not_fit_together_are_refused(tmp_path, changes, message):
    path = tmp_path / "x.npz"
    np.savez(path, **sparse_arrays(**changes))
    with pytest.raises(DataError, match=f"x\\.npz.*{message}"):
        embedding_files.load(path)


@pytest.mark.parametrize(
    ("vectors", "labels", "note", "message"),
    [
        (DENSE, LABELS[:2], "{}", r"x\.npy: expected 3 labels"),
        (DENSE, LABELS.astype(float), "{}", r"x\.npy: expected 3 labels"),
        (DENSE, LABELS.astype("U9"), "{}", r"x\.npy: expected 3 labels"),
        (DENSE.astype(int), LABELS, "{}", r"x\.npy: expected rows of float16 or float32"),
        (DENSE.astype(float), LABELS, "{}", r"x\.npy: expected rows of float16 or float32"),
        (DENSE[0], LABELS, "{}", r"x\.npy: expected rows of float16 or float32, got \(4,\)"),
        (DENSE[:0], LABELS[:0], "{}", r"x\.npy: expected rows .* got \(0, 4\)"),
        (
            np.full_like(DENSE, np.nan),
            LABELS,
            "{}",
            r"x\.npy: .* NaN or infinity",
        ),
        (DENSE, LABELS, "{", r"x\.json: expected the provenance of .*x\.npy"),
        (DENSE, LABELS, "3", r"x\.json: expected the provenance of .*x\.npy"),
        (DENSE, LABELS, None, r"x\.json: expected beside .*x\.npy"),
        (DENSE, None, "{}", r"x\.labels\.npy: expected beside .*x\.npy"),
    ],
)
def test_dense_rows_that_do_not_fit_together_are_refused(tmp_path, vectors, labels, note, message):
    path = tmp_path / "x.npy"
    np.save(path, vectors)
    if labels is not None:
        np.save(tmp_path / "x.labels.npy", labels)
    if note is not None:
        (tmp_path / "x.json").write_text(note)
    with pytest.raises(DataError, match=message):
        embedding_files.load(path)


def test_the_flag_is_named(tmp_path):
    path = tmp_path / "x.npz"
    with pytest.raises(UsageError, match=f"^--dense={path}: expected a file that exists"):
        embedding_files.load_flag("dense", path)
    path.write_bytes(b"text")
    with pytest.raises(DataError, match=f"^--dense={path}: expected an embedding file"):
        embedding_files.load_flag("dense", path)
    np.savez(path, **sparse_arrays())
    with pytest.raises(UsageError, match=f"^--dense={path}: expected dense embeddings"):
        embedding_files.load_flag("dense", path, sparse=False)
