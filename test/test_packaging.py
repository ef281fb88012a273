"""What an engineer gets who installs the package only to search."""

import pathlib
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEARCH = """
import sys
sys.path[:0] = {paths!r}
import numpy as np, scipy.sparse
import sparse_embed.retrieval as retrieval
assert retrieval.__file__.startswith({site!r}), retrieval.__file__
index = retrieval.SparseIndex.build(scipy.sparse.csr_array(np.eye(4, dtype=np.float32)))
scores, ids = index.search(scipy.sparse.csr_array(np.eye(4, dtype=np.float32)[[2]]), k=1)
assert (scores[0, 0], ids[0, 0]) == (1.0, 2)
print([name for name in ("tensorflow", "keras", "faiss", "matplotlib") if name in sys.modules])
"""


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_importing_retrieval_imports_nothing_heavy():
    code = SEARCH.format(paths=[], site=str(ROOT))
    assert run(sys.executable, "-c", code, cwd="/").strip() == "[]"


def test_wheel_searches_without_the_repository(tmp_path):
    """Builds the wheel, unpacks it elsewhere and searches without the editable install."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("sparse_embed-*.whl")
    site = str(tmp_path / "site")
    run(*pip, "install", "--no-deps", "--target", site, wheel)
    code = SEARCH.format(paths=[site, sysconfig.get_path("purelib")], site=site)
    # -S leaves out the .pth files, so that only `paths` is looked at.
    assert run(sys.executable, "-S", "-c", code, cwd=tmp_path).strip() == "[]"
    for name in (
        "experiments/report_template.html",
        "flags/presets/glyphs_flops.flags",
        "retrieval/py.typed",
    ):
        assert (tmp_path / "site" / "sparse_embed" / name).exists()
