"""Number the bytes of a stream that was put together from records by the records they came in."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from firstfault.detect.kept import count_ends
from firstfault.kafka.records import ConsumerRecord, seconds
from firstfault.model import Event, Fact, Line, Observation, Progress
from firstfault.text.unwrap import Record

PLACE_BITS = 20  # of a place that say where in the record a byte lies; the offset of the record stands above them
_INSIDE = (1 << PLACE_BITS) - 1
_REMEMBERED = 2_048  # places that were told of, before those are sought out that may be told of again
_FEW = 64  # questions about a batch, up to which counting its lines costs less than numbering all of them
_SPARE = 512  # entries that may be of no more use before they are cleared away
ENVELOPE_PRECISION, RECORD_PRECISION = 0.001, 2.0  # ± seconds: of a collector's own stamp, and of the time at which a record was produced


class Places:
    """Know of each byte that is still kept in which record it came, and when that was written."""

    def __init__(self) -> None:
        self._starts, self._places = array("q"), array("q")
        self._times: list[Any] = []  # as envelopes have them: reading each would cost more than all the rest
        self._told: dict[int, int] = {}
        self._most_told = _REMEMBERED
        self._late: tuple[int, bytes, Sequence[ConsumerRecord]] | None = None  # records of which little was asked yet
        self._asked = 0
        self.precision = RECORD_PRECISION

    def add(self, starts: bytes, places: Sequence[int], times: Sequence[Any]) -> None:
        """Take the next texts: where each starts in the stream (64-bit integers), its place, and when it was written."""
        self._work_out()
        self._starts.frombytes(starts)
        self._places.extend(places)
        self._times.extend(times)

    def add_lines(self, base: int, data: bytes, records: Sequence[ConsumerRecord]) -> None:
        """Take the next texts as records of one line each, of which `data` holds the lines; most of them nobody ever asks for."""
        self._work_out()
        self._late, self._asked = (base, data, records), 0

    def _late_one(self, offset: int) -> tuple[ConsumerRecord, int] | None:
        """Return the record that was taken last in which a byte lies, and where that starts; None where `_work_out` has to tell."""
        if self._late is None or offset < self._late[0]:
            return None
        self._asked += 1
        if self._asked > _FEW:
            self._work_out()
            return None
        base, data, records = self._late
        end = min(offset - base, len(data) - 1)
        return records[count_ends(data, 0, end)], base + data.rfind(b"\n", 0, end) + 1

    def _work_out(self, before: int = 0) -> None:
        """Number the bytes of what was taken last, but for what is only needed for bytes before an offset of the stream."""
        if self._late is None:
            return
        base, data, records = self._late
        self._late = None
        if before > base:
            del self._starts[:], self._places[:], self._times[:]
            records = records[-max(1, count_ends(data, before - base)) :]
        sizes = [len(record.value or b"") + 1 for record in records]
        begin = base + len(data) - sum(sizes)
        self._starts.extend(accumulate(sizes[:-1], initial=begin))
        self._places.extend([record.offset << PLACE_BITS for record in records])
        self._times.extend([record.timestamp / 1000 for record in records])

    def forget(self, before: int, retold: Callable[[], Iterable[int]]) -> None:
        """Drop what is only needed for bytes before an offset of the stream, but for those that may be told of again."""
        self._work_out(before)
        index = bisect_right(self._starts, before) - 1
        if index > _SPARE:
            del self._starts[:index], self._places[:index], self._times[:index]
        if len(self._told) > self._most_told:
            self._told = {offset: self._told[offset] for offset in retold() if offset in self._told}
            self._most_told = _REMEMBERED + 2 * len(self._told)  # a storm of repeats is not looked through at every batch

    def place(self, offset: int) -> int:
        """Return the place of a byte of the stream that was taken; the same one, however often it is asked for."""
        known = self._told.get(offset)
        if known is not None:
            return known
        late = self._late_one(offset)
        index = max(0, bisect_right(self._starts, offset) - 1)
        if late is None and not self._starts:
            return offset
        place, start = (late[0].offset << PLACE_BITS, late[1]) if late is not None else (self._places[index], self._starts[index])
        found = place + min(max(0, offset - start), _INSIDE - (place & _INSIDE))
        self._told[offset] = found
        return found

    def record(self, offset: int) -> Record:
        """Return what the envelope says of the line at an offset of the stream: when it was written."""
        late = self._late_one(offset)
        index = bisect_right(self._starts, offset) - 1
        written = late[0].timestamp / 1000 if late is not None else self._times[index] if index >= 0 else None
        time = seconds(written)
        return Record(b"", offset, time or None, precision=self.precision)

    def placed(self, one: Observation) -> Observation:
        """Return an observation whose id and positions are those of records: the same after any restart."""
        place = self.place(one.offset - 1) + 1 if isinstance(one, Progress) and one.offset else self.place(one.offset)  # its end may be new
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
        self._work_out()
        return {
            "starts": self._starts.tolist(),
            "places": self._places.tolist(),
            "times": list(self._times),
            "told": list(self._told.items()),
            "precision": self.precision,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take up a snapshot."""
        self._late = None
        self._starts, self._places = array("q", saved["starts"]), array("q", saved["places"])
        self._times, self._told = list(saved["times"]), dict(saved["told"])
        self.precision = saved["precision"]
