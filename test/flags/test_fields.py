"""Budgets of a search, as --keep reads them."""

import pytest

from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app
from sparse_embed.flags.options import evaluate, fields


def parsed(*words):
    return app.parse(evaluate.Megaface, words)


def test_threshold_is_a_number_or_none():
    """Also below 0, which scores of signed embeddings can be; `none` alone is no limit."""
    for text, value in (("0.5", 0.5), ("0", 0.0), ("-1", -1.0), ("none", None)):
        assert parsed(f"--threshold={text}").threshold == value
    assert parsed().threshold == 0.25


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
def test_budgets_of_rows_and_queries(text, budgets):
    assert parsed(f"--keep={text}").keep == budgets
    assert parsed(f"--keep={fields.budgets_text(budgets)}").keep == budgets


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-1", "32,0", "32:0", "0:32", "many", "1.5", "1e3", "32:", ":8", "32:8:4", ","),
        *("32,,16", "32;16", "nan", "0x10", "1_000", "\u0663", "9" * 30, "9" * 5000),
    ],
)
def test_other_budgets_are_refused(text):
    expected = r"--keep=.*is no budget: expected integers >= 1, each rows or rows:queries"
    with pytest.raises(UsageError, match=expected):
        parsed(f"--keep={text}")


def test_nothing_is_cut_by_default():
    assert parsed().keep == ()
