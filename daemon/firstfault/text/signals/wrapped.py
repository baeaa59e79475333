"""Records of c10d's C++ side that a terminal or viewer cut into several lines, at its width: anywhere, inside numbers too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING

import re2

from firstfault.text.signals import collective, reports
from firstfault.text.signals.base import BlockSignal, Reading, Signal

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

_MOST = 5  # lines of one record: fingerprints of collectives are the longest
_LEAST = 40  # characters; no terminal is narrower
_WHOLE: tuple[tuple[re2._Regexp, Signal], ...] = tuple(
    (re2.compile(signal.pattern), signal)
    for signal in (*collective.SIGNALS, *reports.SIGNALS)
    if isinstance(signal, Signal)
    and signal.name in ("watchdog-timeout", "blocking-wait-timeout", "group-status", "watchdog-stuck", "collective-mismatch")
)


def is_cut(line: ReadLine) -> bool:
    """Tell whether a record may go on in the next line: it says nothing whole and ends in the middle of a sentence."""
    text = line.message.rstrip()
    return len(line.text) >= _LEAST and text[-1:] not in ("", ".", "!") and not any(pattern.search(text) for pattern, _ in _WHOLE)


def goes_on(opener: ReadLine, line: ReadLine) -> bool:
    """Tell whether a line is the rest of the one before it: it has neither a stamp nor a tag of its own."""
    return line.stamp.source != "line" and len(line.kinds) < len(opener.kinds) and bool(line.message.strip())


def _read(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    """Join the parts with and without a blank between them, since a viewer may have dropped it; the joint that says most is right."""
    best: list[Reading] = []
    for gaps in product(("", " "), repeat=len(lines) - 1):
        text = "".join(line.message.strip() + gap for line, gap in zip(lines, (*gaps, ""), strict=True))
        found = [reading for pattern, signal in _WHOLE for reading in _readings(pattern, signal, text, lines[0])]
        best = max(best, found, key=lambda readings: sum(len(reading.values) for reading in readings))
    return best


def _readings(pattern: re2._Regexp, signal: Signal, text: str, line: ReadLine) -> Iterable[Reading]:
    match = pattern.search(text)
    return signal.read(match.groupdict(), line._replace(message=text, text=text)) if match else ()


SIGNALS = (
    BlockSignal(
        "wrapped-record",
        r"[EF]\d{3,4} \d\d:\d\d:\d\d\.\d+ ProcessGroup\w+\.cpp:\d+\]|\[[EF] ProcessGroup\w+\.cpp:\d+\]",
        lambda line: False,
        _MOST,
        _read,
        begins=is_cut,
        goes_on=goes_on,
    ),
)
