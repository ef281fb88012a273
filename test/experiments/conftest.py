import numpy as np
import pytest


@pytest.fixture(scope="session")
def vectors(tmp_path_factory):
    """40 classes of 8-d vectors: a data set on which a step costs nothing."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 12)
    embeddings = rng.normal(size=(40, 8))[labels] + 0.3 * rng.normal(size=(480, 8))
    path = tmp_path_factory.mktemp("vectors") / "vectors.npz"
    np.savez(path, embeddings=embeddings.astype(np.float32), labels=labels)
    return path
