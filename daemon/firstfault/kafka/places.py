"""Number the bytes of a stream that was put together from records by the records they came in."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from firstfault.kafka.records import seconds
from firstfault.model import Event, Fact, Line, Observation, Progress
from firstfault.text.unwrap import Record

PLACE_BITS = 20  # of a place that say where in the record a byte lies; the offset of the record stands above them
_INSIDE = (1 << PLACE_BITS) - 1
_REMEMBERED = 2_048  # places that were told of and may be told of again, when repeats are counted
_SPARE = 512  # entries that may be of no more use before they are cleared away
ENVELOPE_PRECISION, RECORD_PRECISION = 0.001, 2.0  # ± seconds: of a collector's own stamp, and of the time at which a record was produced


class Places:
    """Know of each byte that is still kept in which record it came, and when that was written."""

    def __init__(self) -> None:
        self._starts, self._places = array("q"), array("q")
        self._times: list[Any] = []  # as envelopes have them: reading each would cost more than all the rest
        self._told: dict[int, int] = {}
        self.precision = RECORD_PRECISION

    def add(self, starts: bytes, places: Sequence[int], times: Sequence[Any]) -> None:
        """Take the next texts: where each starts in the stream (64-bit integers), its place, and when it was written."""
        self._starts.frombytes(starts)
        self._places.extend(places)
        self._times.extend(times)

    def forget(self, before: int) -> None:
        """Drop what is only needed for bytes before an offset of the stream."""
        index = bisect_right(self._starts, before) - 1
        if index > _SPARE:
            del self._starts[:index], self._places[:index], self._times[:index]

    def place(self, offset: int) -> int:
        """Return the place of a byte of the stream; the same one, however often it is asked for."""
        known = self._told.get(offset)
        if known is not None:
            return known
        index = max(0, bisect_right(self._starts, offset) - 1)
        if not self._starts:
            return offset
        found = self._places[index] + min(max(0, offset - self._starts[index]), _INSIDE - (self._places[index] & _INSIDE))
        self._told[offset] = found
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        return found

    def record(self, offset: int) -> Record:
        """Return what the envelope says of the line at an offset of the stream: when it was written."""
        index = bisect_right(self._starts, offset) - 1
        time = seconds(self._times[index]) if index >= 0 else None
        return Record(b"", offset, time or None, precision=self.precision)

    def placed(self, one: Observation) -> Observation:
        """Return an observation whose id and positions are those of records: the same after any restart."""
        place = self.place(one.offset)
        head, tail = f"{one.stream}@", one.id[len(one.stream) + 1 :].partition("/")[2]
        name = f"{head}{place}/{tail}"
        if isinstance(one, Event):
            return replace(one, id=name, offset=place, lines=tuple(map(self._line, one.lines)))
        if isinstance(one, Fact):
            return replace(one, id=name, offset=place, line=one.line and self._line(one.line))
        return replace(one, id=name, offset=place, last_line=one.last_line and self._line(one.last_line))

    def words(self, one: Progress) -> Progress:
        """Do the same for a summary."""
        found = self.placed(one)
        assert isinstance(found, Progress)
        return found

    def _line(self, line: Line) -> Line:
        return replace(line, offset=self.place(line.offset))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "starts": self._starts.tolist(),
            "places": self._places.tolist(),
            "times": list(self._times),
            "told": list(self._told.items()),
            "precision": self.precision,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take up a snapshot."""
        self._starts, self._places = array("q", saved["starts"]), array("q", saved["places"])
        self._times, self._told = list(saved["times"]), dict(saved["told"])
        self.precision = saved["precision"]
