import numpy as np
import pytest
import scipy.sparse

from sparse_embed.experiments.evaluation import embedding_files
from sparse_embed.experiments.evaluation.embedding_files import Embeddings

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
    with pytest.raises(ValueError, match=f"{name}: not an embedding file"):
        embedding_files.load(path)


def test_truncated_file_is_refused(tmp_path):
    path = tmp_path / "sparse.npz"
    embedding_files.save(path, Embeddings(scipy.sparse.csr_array(DENSE), LABELS, NOTE))
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="not an embedding file"):
            embedding_files.load(path)
