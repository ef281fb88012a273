"""The script, as far as it goes without a database."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from sparse_embed.experiments.exporting.pgvector import PgVector
from sparse_embed.experiments.exporting.qdrant import open_qdrant
from sparse_embed.retrieval import SparseIndex


@pytest.mark.parametrize(
    ("opened", "module"),
    [
        (lambda: PgVector("host=127.0.0.1", "items"), "psycopg"),
        (lambda: open_qdrant("http://127.0.0.1:1", "items"), "qdrant_client"),
        (lambda: open_qdrant("folder", "items"), "qdrant_edge"),
    ],
)
def test_without_the_extra_one_line_names_it(opened, module, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else found(name)
    )
    with pytest.raises(ImportError, match=rf"{module}.*pip install 'sparse-embed\[export\]'"):
        opened()


def test_mistakes_are_named(tmp_path):
    SparseIndex.build(np.eye(3, dtype=np.float32)).save(tmp_path / "items.index")
    command = [sys.executable, "-m", "sparse_embed.experiments.export_index"]
    done = subprocess.run(
        [*command, f"--source={tmp_path / 'items.index'}", "--to=qdrant"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("export_index: --target is not given")
