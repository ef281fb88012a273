"""The faults of `make mutants` still have their places in the code, and their tests."""

import pathlib

import pytest
from mutants.__main__ import mutated
from mutants.table import MUTANTS

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_names_a_test(mutant):
    whole = (ROOT / mutant.file).read_text()
    assert mutated(mutant, whole) != whole
    file, _, name = mutant.test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_mutants_are_all_over_the_packages():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {mutant.file.partition("/")[0] for mutant in MUTANTS} == packages | {"benchmarks"}
