"""Judge one RE2 pattern: does it compile, is it specific enough, does it stay clear of one incident's constants?"""

from __future__ import annotations

import re

from firstfault.rules.literals import longest_literal
from firstfault.rules.matching import compiled

MIN_TRIGGER_BYTES = 6
MAX_PATTERN = 1000
_LOCAL = (
    (re.compile(r"/(?:home|usr|opt|root|mnt|data|scratch|workspace|Users)/"), "a path of one machine"),
    (re.compile(r"\b(?:\d{1,3}\\\.){3}\d{1,3}\b"), "an address"),
    (re.compile(r"0x[0-9a-f]{5,}"), "a memory address"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "a date"),
)


def pattern_faults(pattern: str, *, trigger: bool) -> tuple[list[str], set[str]]:
    """Return what is wrong with the pattern, and the names of its groups; a trigger must be found by the scanner."""
    if len(pattern) > MAX_PATTERN:
        return [f"pattern of {len(pattern)} characters; at most {MAX_PATTERN}"], set()
    try:
        program = compiled(pattern)
    except ValueError as error:
        return [f"not RE2: {error} in {pattern!r}; look-around and back-references do not exist there"], set()
    faults = [f"pattern holds {what}, which only one log has: {found[0]!r}" for shape, what in _LOCAL if (found := shape.search(pattern))]
    if program.search(""):
        faults.append(f"pattern {pattern!r} matches the empty text")
    elif trigger:
        faults += _trigger_faults(pattern)
    return faults, set(program.groupindex)


def _trigger_faults(pattern: str) -> list[str]:
    literal = longest_literal(pattern)
    size = len(literal.encode())
    if size >= MIN_TRIGGER_BYTES:
        return []
    return [f"pattern {pattern!r} has no run of {MIN_TRIGGER_BYTES} literal bytes (longest: {literal!r}), so that it cannot be scanned for"]
