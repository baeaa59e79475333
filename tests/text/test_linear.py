"""The quick search answers as `re2` does."""

from __future__ import annotations

import re2
from hypothesis import given
from hypothesis import strategies as st

from firstfault.text.linear import Pattern

PATTERNS = (r"(?P<a>\d+)(?:-(\d+))?", r"x*", r"(?i)rank (?P<n>\d)|(?P<w>all)", r"\b[a-z]+\b", r"^$")


@given(st.sampled_from(PATTERNS), st.text(alphabet="rank 01-xRALé\n", max_size=30))
def test_matches_and_groups_are_the_same(pattern: str, text: str) -> None:
    """Whatever the text, ASCII or not: where matches are, and their groups by number and name."""
    quick, slow = Pattern(pattern), re2.compile(pattern)

    def told(found):
        return (
            None
            if found is None
            else (found.group(), found.group(0), found.groups(), found.groupdict(), found.span(), found.start(), found.end())
        )

    assert told(quick.search(text)) == told(slow.search(text))
    assert [told(one) for one in quick.finditer(text)] == [told(one) for one in slow.finditer(text)]
