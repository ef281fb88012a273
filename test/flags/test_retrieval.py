"""Budgets of a search, as --keep reads them."""

import pytest
from absl import flags as absl_flags
from absl.testing import flagsaver

from sparse_embed.flags.retrieval import KEEP


@pytest.fixture
def parsed():
    """Parses flags as a script does; what they were before comes back afterwards."""
    with flagsaver.flagsaver():
        yield lambda *arguments: absl_flags.FLAGS(["script", *arguments])


@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        ("32", ((32, 32),)),
        ("64,32,16,32:8", ((64, 64), (32, 32), (16, 16), (32, 8))),
        ("8:32", ((8, 32),)),
        (" 4, 2:1", ((4, 4), (2, 1))),
        ("32,32:32,32", ((32, 32),)),
        ("100000000", ((100000000, 100000000),)),
        ("", ()),
    ],
)
def test_budgets_of_rows_and_queries(parsed, text, budgets):
    parsed(f"--keep={text}")
    assert KEEP.value == budgets
    parsed(absl_flags.FLAGS["keep"].serialize())
    assert KEEP.value == budgets


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-1", "32,0", "32:0", "0:32", "many", "1.5", "1e3", "32:", ":8", "32:8:4", ","),
        *("32,,16", "32;16", "nan", "0x10", "1_000", "\u0663", "9" * 30, "9" * 5000),
    ],
)
def test_other_budgets_are_refused(parsed, text):
    expected = r"--keep=.*is no budget: expected integers >= 1, each rows or rows:queries"
    with pytest.raises(absl_flags.IllegalFlagValueError, match=expected):
        parsed(f"--keep={text}")


def test_nothing_is_cut_by_default(parsed):
    parsed()
    assert KEEP.value == ()
    assert absl_flags.FLAGS["keep"].default == ()
