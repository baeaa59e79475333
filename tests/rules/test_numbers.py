"""Numbers of step lines: what is a spike, a drop, a plateau, and what is ordinary noise."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.rules.numbers import misbehaves
from firstfault.rules.schema import NUMBER_KINDS

STEADY = [2.0, 2.02, 1.99, 2.01, 1.98, 2.0, 1.97, 2.0]


@pytest.mark.parametrize(
    ("kind", "values", "answer"),
    [
        ("nan", [1.0, math.nan], True),
        ("nan", [math.nan, 1.0], False),
        ("inf", [1.0, -math.inf], True),
        ("spike", [*STEADY, 9.0], True),
        ("spike", [*STEADY, 2.5], False),
        ("spike", [11.0, 9.0, 8.0, 7.0, 6.5, 6.0, 5.8, 5.5, 5.4], False),
        ("spike", [2.0, 9.0], False),
        ("spike", [*STEADY, math.nan], False),
        ("drop", [*STEADY, 0.0], True),
        ("drop", [*STEADY, 1.5], False),
        ("plateau", [2.0] * 40, True),
        ("plateau", [8.0 - step * 0.1 for step in range(40)], False),
        ("plateau", [2.0] * 39, False),
    ],
)
def test_the_newest_value_is_judged_by_those_before(kind: str, values: list[float], answer: bool) -> None:
    """A start that falls fast is no spike, noise is none, and too few values say nothing."""
    assert misbehaves(kind, values) is answer


@given(st.sampled_from(NUMBER_KINDS), st.lists(st.floats(), max_size=60))
def test_any_series_has_an_answer(kind: str, values: list[float]) -> None:
    """Every kind that an entry may name answers for every series, empty and infinite ones included."""
    assert misbehaves(kind, values) in (True, False)
