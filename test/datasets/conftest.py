import os
import pathlib

import pytest


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """The folder of real data; tests that need it skip where it is absent."""
    beside = pathlib.Path(__file__).parents[2].parent / "shared"
    folder = pathlib.Path(os.environ.get("SPARSE_EMBED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; SPARSE_EMBED_DATA names its folder")
    return folder
