"""Turn read lines into evidence: bounded text with its place."""

from __future__ import annotations

from collections.abc import Iterable

from firstfault.model import Line, Stream
from firstfault.text.lines import ReadLine

MAX_TEXT = 1024  # characters of one line kept as evidence
_BEFORE = 256  # of these before what was found
MAX_LINES = 12  # of one event


def evidence(line: ReadLine, stream: Stream, at: int = 0) -> Line:
    """Return a line as evidence; `at` is the place in its message that must be in it."""
    text = line.text
    if len(text) > MAX_TEXT:
        start = max(0, len(text) - len(line.message) + at - _BEFORE) if text.endswith(line.message) else 0
        start = 0 if start + _BEFORE < MAX_TEXT else start
        text = text[start : start + MAX_TEXT]
    return Line(stream.path, line.number, text, stream.id, line.offset)


def selected(lines: Iterable[ReadLine], stream: Stream, telling: ReadLine | None = None) -> tuple[Line, ...]:
    """Return the first and the last lines of a statement, the telling one last."""
    all_lines = list(lines)
    chosen = all_lines if len(all_lines) <= MAX_LINES else [all_lines[0], *all_lines[1 - MAX_LINES :]]
    if telling is not None:
        others = [line for line in chosen if line.offset != telling.offset]
        chosen = [*others[: 1 if len(others) >= MAX_LINES else 0], *others[2 - MAX_LINES :], telling]
    return tuple(evidence(line, stream) for line in chosen)
