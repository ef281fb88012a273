import math

import numpy as np
import pytest

from sparse_embed.common.checks import check_choice, check_number


def test_choice_returns_the_value_or_names_the_choices():
    assert check_choice("activation", "relu", ["relu", "none"]) == "relu"
    with pytest.raises(ValueError, match="activation='tanh': expected one of relu, none"):
        check_choice("activation", "tanh", ["relu", "none"])


@pytest.mark.parametrize("value", [1, 1.5, np.float32(2), np.int64(1), 3])
def test_number_within_bounds_is_returned(value):
    assert check_number("x", value, minimum=1, maximum=3) == value


@pytest.mark.parametrize("value", [0, 4, math.nan, math.inf, -math.inf, "2", None, True, 1j])
def test_number_outside_bounds_is_refused(value):
    with pytest.raises(ValueError, match=r"x=.*: expected a finite number >= 1 <= 3"):
        check_number("x", value, minimum=1, maximum=3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_without_bounds_is_finite(value):
    assert check_number("x", -1e300) == -1e300
    with pytest.raises(ValueError, match=r"x=.*: expected a finite number$"):
        check_number("x", value)


def test_integer_and_strict_bound():
    assert check_number("steps", 1, integer=True, above=0) == 1
    with pytest.raises(ValueError, match=r"steps=1\.5: expected an integer > 0"):
        check_number("steps", 1.5, integer=True, above=0)
    with pytest.raises(ValueError, match="steps=0: expected an integer > 0"):
        check_number("steps", 0, integer=True, above=0)
