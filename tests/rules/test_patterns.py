"""Patterns: what RE2 takes, what the scanner can find, and what belongs to one incident alone."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.rules.catalogue import Symptom
from firstfault.rules.literals import longest_literal
from firstfault.rules.load import load
from firstfault.rules.matching import match_message
from firstfault.rules.matrix import PatternIndex
from firstfault.rules.patterns import pattern_faults


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        (r"foo (\w+) barbaz", " barbaz"),
        (r"(?i)CUDA out of memory\. Tried", "CUDA out of memory. Tried"),
        (r"(?:CUDA|HIP) out of", " out of"),
        (r"(?P<what>abcdef)+ghi", "abcdef"),
        (r"abc(?:def)?ghijkl", "ghijkl"),
        (r"abc(?:def)ghi", "abcdefghi"),
        (r"abcdef+g", "abcdef"),
        (r"abcdef*g", "abcde"),
        (r"abcde{2,3}f", "abcde"),
        (r"abcde{0,3}f", "abcd"),
        (r"[^x\]]abcd\bef", "abcdef"),
        (r"[[:alpha:]]abc", "abc"),
        (r"a|bcdef", "a"),
        (r"\x41\x{42}C", "ABC"),
        (r"\Qa.b\Ec", "a.bc"),
        (r"\pLabc\p{Greek}d", "abc"),
        (r"^abc$", "abc"),
        (r"", ""),
    ],
)
def test_the_longest_mandatory_run_is_found(pattern: str, literal: str) -> None:
    """Only text that every match must contain counts."""
    re2.compile(pattern)
    assert longest_literal(pattern) == literal


_LETTERS = st.text("abcdef ", min_size=1, max_size=5)
_ATOM = st.one_of(_LETTERS, st.sampled_from([r"\d+", r"\w", ".*", "[ab]", "x?", "yz*", "(?:ab|cde)+", "(?P<g>fed){1,2}"]))


@given(st.lists(_ATOM, max_size=6).map("".join).filter(lambda pattern: pattern.count("(?P<g>") < 2), st.text("abcdefxyz 01", max_size=40))
def test_whatever_matches_contains_the_run(pattern: str, text: str) -> None:
    """The run is in every text that matches; else the scanner would miss lines."""
    found = re2.search(pattern, text)
    if found:
        assert longest_literal(pattern) in found.group()


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(?=a)widget", "not RE2"),
        (r"(widget)\1", "not RE2"),
        ("(?:widget)*", "matches the empty text"),
        (r"\d+ x", "no run of 6 literal bytes"),
        (r"/home/me/train\.py failed", "a path of one machine"),
        (r"connect to 10\.0\.3\.7 refused", "an address"),
        ("freed 0x7f3a91c2 twice", "a memory address"),
        ("2026-01-02 widget", "a date"),
        ("w" * 1001, "at most 1000"),
    ],
)
def test_bad_patterns_are_refused(pattern: str, said: str) -> None:
    """Each kind of bad pattern is named."""
    assert any(said in fault for fault in pattern_faults(pattern, trigger=True)[0])


def test_a_condition_needs_no_trigger() -> None:
    """Patterns that are asked only around a hit may be short."""
    assert pattern_faults(r"\d+ x", trigger=False) == ([], set())


def test_a_constant_device_path_is_no_place_of_one_machine() -> None:
    """/dev/shm is the same everywhere."""
    assert pattern_faults(r"No space left on device: '/dev/shm", trigger=True) == ([], set())


# matching -------------------------------------------------------------------------------------------------------------------


def test_captures_are_typed() -> None:
    """Numbers arrive as numbers, thousands separators included; what is no number is absent."""
    symptom = Symptom(
        "f",
        "s",
        "initiating",
        any=(r"used (?P<used>\S+) of (?P<all>\S+) on (?P<who>\w+)(?P<more> now)?",),
        captures={"used": "int", "all": "float"},
    )
    assert match_message(symptom, "used 1,024 of 2.5 on gpu") == {"used": 1024, "all": 2.5, "who": "gpu"}
    assert match_message(symptom, "used many of 2.5 on gpu") == {"all": 2.5, "who": "gpu"}


def test_a_forbidding_pattern_wins() -> None:
    """`not` takes the line back even where a pattern matched."""
    symptom = Symptom("f", "s", "initiating", any=("widget jammed", "jammed hard"), not_=("might be",))
    assert match_message(symptom, "widget jammed hard") == {}
    assert match_message(symptom, "widget might be jammed hard") is None


def test_a_hostile_line_takes_linear_time() -> None:
    """Nested repeats cost nothing special: the match of a long line ends at once."""
    symptom = Symptom("f", "s", "initiating", any=("(?:a+)+ended",))
    assert match_message(symptom, "a" * 200_000) is None


SHIPPED = load().symptoms


@settings(deadline=None)  # the first example compiles every pattern
@given(st.one_of(st.text(max_size=80), st.sampled_from([example.text for entry in load().entries.values() for example in entry.match])))
def test_the_index_finds_whatever_the_slow_matcher_finds(text: str) -> None:
    """One pass over all patterns misses no symptom that the plain matcher sees, on any text."""
    for line in text.splitlines():
        slow = {(one.fingerprint, one.id) for one in SHIPPED if match_message(one, line) is not None}
        quick = {(one.fingerprint, one.id) for one in INDEX.candidates(line)}
        assert slow <= quick


INDEX = PatternIndex(SHIPPED)
