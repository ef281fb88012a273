"""Who imports whom: the folders keep their directions, and no script imports a script."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXPERIMENTS = ROOT / "experiments"
SCRIPTS = {
    f"sparse_embed.experiments.{path.stem}"
    for path in EXPERIMENTS.glob("*.py")
    if path.stem != "__init__"
}


def imported(path):
    """All modules of this package that a file imports anywhere, and what it takes from them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("sparse_embed")}


def files(folder):
    return sorted(path for path in (ROOT / folder).rglob("*.py"))


def test_every_file_at_the_top_of_experiments_is_a_script():
    assert len(SCRIPTS) <= 15
    for path in EXPERIMENTS.glob("*.py"):
        is_script = "app.run(main, " in path.read_text()
        assert is_script == (path.stem != "__init__"), path


@pytest.mark.parametrize("path", files("experiments"), ids=lambda path: path.stem)
def test_no_script_is_imported(path):
    """Neither by another script, nor by a library below."""
    for name in imported(path):
        assert not any(name == script or name.startswith(f"{script}.") for script in SCRIPTS), name


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("common", set()),
        ("models", {"common"}),
        ("losses", {"common"}),
        ("datasets", {"common"}),
        ("retrieval", {"common"}),
        ("sparsify", {"common", "models", "losses", "retrieval"}),
        ("flags", {"common", "datasets", "losses", "models"}),
    ],
)
def test_folders_import_only_what_they_may(folder, allowed):
    """models, losses, datasets and retrieval know neither each other nor flags."""
    for path in files(folder):
        for name in imported(path):
            top = name.split(".")[1]
            assert top in allowed | {folder}, f"{path} imports {name}"


ROOMS = ("core", "encoders", "methods", "training", "evaluation")  # each imports those before it
SIDE_BY_SIDE = ("reporting", "orchestration", "exporting", "serving")  # all of these, none another


@pytest.mark.parametrize("room", [*ROOMS, *SIDE_BY_SIDE])
def test_rooms_import_only_those_before_them(room):
    before = ROOMS[: ROOMS.index(room)] if room in ROOMS else ROOMS
    for path in files(f"experiments/{room}"):
        for name in imported(path):
            _, top, *below = name.split(".")
            if top == "experiments":
                assert below[0] in (*before, room), f"{path} imports {name}"


def test_every_room_has_its_place():
    folders = {path.parent.name for path in EXPERIMENTS.glob("*/__init__.py")}
    assert folders == {*ROOMS, *SIDE_BY_SIDE}


def test_configs_are_read_without_absl():
    """Whoever opens a run has no command line, and defines no flags."""
    modules = ("flags.train_config", "common.options", "datasets.catalogue")
    code = "".join(f"import sparse_embed.{module}\n" for module in modules)
    code += "import sys; print('absl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
