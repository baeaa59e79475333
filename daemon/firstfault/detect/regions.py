"""Cut scanned bytes into the lines that the detector reads: around hits, or one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from firstfault.detect.kept import after_end, count_ends, line_start, line_stop
from firstfault.detect.scanner import Hit
from firstfault.text.unwrap import Record

_STRETCH = 32 * 1024  # bytes at most that are passed over at once
PIECE = 1 << 20  # bytes; a longer line is read in pieces of this length, counted from its start
HEAD = 256  # bytes of a long line's start that stand before each later piece, so that it is known who speaks and when


class Raw(NamedTuple):
    """One line, or a piece of a long one, before it is read."""

    offset: int  # of its first byte in the stream
    number: int  # of the line, from 1
    data: bytes
    record: Record | None = None  # the envelope that it came in
    after: int = 0  # offset up to which the stream was read when this line was


class Span(NamedTuple):
    """Where a line is in the scanned bytes."""

    start: int
    stop: int  # of its text
    after: int  # where the next one begins
    piece: int = 0  # which piece of a long line


class PlainRegion:
    """Bytes of the stream itself, from one line's start (or a long line's middle) to another's."""

    def __init__(self, data: bytes, base: int, low: int, high: int, hits: Sequence[Hit], number: int, head: bytes = b"") -> None:
        self.data, self.base, self.low, self.high = data, base, low, high
        self._head = head  # of the long line whose later pieces begin at `low`; b"": a line begins there
        self.hits = [hit for hit in hits if low < hit[1] <= high] if hits else hits
        self._counted, self._number = low, number  # `number` is that of the line at `low`
        self._line = (0, 0)  # the last long line seen, and where its text stops

    def span(self, at: int) -> Span:
        """Return the line, or the piece of a long one, that holds data[at]."""
        start, stop = self._line
        if not start <= at < stop:
            start, stop = line_start(self.data, at, self.low), line_stop(self.data, at, self.high)
            self._line = (start, stop) if stop - start > PIECE else (0, 0)
        if stop - start <= PIECE:
            return Span(start, stop, after_end(self.data, stop, self.high))
        piece = (at - start) // PIECE
        low, high = start + piece * PIECE, min(stop, start + (piece + 1) * PIECE)
        return Span(low, high, high if high < stop else after_end(self.data, stop, self.high), piece)

    def whole_lines(self, at: int, before: int) -> int:
        """Return up to where lines can be passed over from `at` on: some whole lines, none of them that of `before`; else `at`."""
        if self.data[at - 1 : at] not in (b"\n", b"\r") and (at > self.low or self._head):
            return at  # in the middle of a long line
        stop = self.high if before >= self.high else line_start(self.data, before, self.low)
        if stop - at > _STRETCH:
            stop = line_start(self.data, at + _STRETCH, at)
        return max(at, stop)

    def raw(self, span: Span) -> Raw:
        text = self.data[span.start : span.stop]
        start = span.start - span.piece * PIECE
        if start == self.low and self._head:
            text = self._head + b" " + text
        elif span.piece:
            text = self.data[start : start + HEAD] + b" " + text
        return Raw(self.base + span.start, self._count(start), text, None, self.base + span.after)

    def _count(self, start: int) -> int:
        if start > self._counted:
            self._number += count_ends(self.data, self._counted, start)
            self._counted = start
        return self._number

    def number_at(self, start: int) -> int:
        """Return the number of the line that begins at `start`, at or after all lines read so far."""
        return self._count(start)


class RecordRegion:
    """Messages taken out of envelopes, joined so that one scan does for all."""

    def __init__(self, lines: Sequence[Raw], joined: bytes, starts: Sequence[int], hits: Sequence[Hit]) -> None:
        self._lines, self._starts, self.hits = lines, starts, hits
        self.low, self.high = 0, len(joined) + 1 if lines else 0

    def span(self, at: int) -> Span:
        index = bisect_right(self._starts, at) - 1
        start = self._starts[index]
        stop = start + len(self._lines[index].data)
        return Span(start, stop, stop + 1)

    def raw(self, span: Span) -> Raw:
        return self._lines[bisect_right(self._starts, span.start) - 1]


Region = PlainRegion | RecordRegion
