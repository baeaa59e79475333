"""What holds for all readers: their patterns, their documentation, and that no bytes upset them."""

from __future__ import annotations

import re
import re._constants as sre
import re._parser as parser
from pathlib import Path
from typing import Any

import orjson
import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.text.signals import SIGNALS, BlockSignal

from .facts import facts
from .test_readings import FAMILIES

PAGE = (Path(__file__).parents[3] / "docs" / "signals.md").read_text()
ROWS = dict(re.findall(r"^\| `([\w-]+)` \| (.*)$", PAGE, re.M))
LINES = [case["lines"] for told in FAMILIES.values() for case in told["match"]]


def _patterns() -> list[Any]:
    return [pytest.param(signal.opener if isinstance(signal, BlockSignal) else signal.pattern, id=signal.name) for signal in SIGNALS]


def _runs(parsed: Any) -> tuple[int, str | None]:
    """Return the longest literal run that each match must contain, and the literal that all of it is, if it is one."""
    best, run = 0, ""
    pure = True
    for kind, value in parsed:
        literal: str | None = None
        inner = 0
        if kind is sre.LITERAL:
            literal = chr(value)
        elif kind is sre.SUBPATTERN:
            inner, literal = _runs(value[3])
        elif kind is sre.BRANCH:
            inner = min(_runs(branch)[0] for branch in value[1])
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[0] >= 1:
            inner = _runs(value[2])[0]
        elif kind is sre.AT:
            continue
        if literal is None:
            pure, run, best = False, "", max(best, inner)
            continue
        run += literal
        best = max(best, len(run.encode()))
    return best, run if pure else None


@pytest.mark.parametrize("pattern", _patterns())
def test_a_pattern_can_trigger_a_scan(pattern: str) -> None:
    """Every pattern is RE2, is not anchored, and whatever it matches contains five bytes that are always the same."""
    re2.compile(pattern)
    assert not pattern.startswith(("^", r"\A"))
    assert _runs(parser.parse(pattern))[0] >= 5


@pytest.mark.parametrize("pattern", _patterns())
def test_a_pattern_is_understood_by_the_scanner(pattern: str) -> None:
    """The vectorised scanner compiles every pattern."""
    hyperscan = pytest.importorskip("hyperscan")
    hyperscan.Database().compile(expressions=[pattern.encode()], flags=[0])


def test_every_fact_and_value_is_documented() -> None:
    """Every fact name and value key that the test lines give has its place in docs/signals.md."""
    missing = set()
    for text in LINES:
        for said in facts(text):
            row = ROWS.get(said.name, "")
            missing |= {f"{said.name}: {key}" for key in said.values if f"`{key}`" not in row}
    assert missing == set()


def test_every_documented_fact_is_read() -> None:
    """docs/signals.md promises no fact that no reader gives."""
    assert set(ROWS) == {said.name for text in LINES for said in facts(text)}


def test_values_are_plain() -> None:
    """Values are numbers, texts, flags, lists and mappings of these, so that they survive any transport."""
    for text in LINES:
        for said in facts(text):
            orjson.dumps(said.values, option=orjson.OPT_NON_STR_KEYS)


@given(st.sampled_from(LINES), st.integers(0, 400), st.integers(0, 400), st.text(max_size=12))
@settings(max_examples=300, deadline=None)
def test_damaged_lines_upset_no_reader(text: str, cut: int, skip: int, noise: str) -> None:
    """A line with a piece cut out and noise put in is read or left alone, but never breaks a reader."""
    cut = min(cut, len(text))
    facts(text[:cut] + noise + text[cut + skip :])


def test_a_hostile_line_takes_linear_time() -> None:
    """Sixteen kilobytes of what makes a back-tracking matcher explode are read at once."""
    facts("rank=1 " * 2000 + "loss " * 500 + "[" * 1000 + "WorkNCCL(" * 500)
