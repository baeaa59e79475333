"""Look back from a line over a fixed distance of its stream: lines before it, and when its speaker last gave the time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from firstfault.detect.folding import speaker_of
from firstfault.detect.kept import Kept, count_ends, line_start, line_stop
from firstfault.detect.regions import Raw
from firstfault.detect.scanner import CLOCK
from firstfault.model import Stamp
from firstfault.text.lines import LineReader, ReadLine, split
from firstfault.text.steps import may_hold_step
from firstfault.text.unwrap import Record, Unwrapper, unwrap_line

_CLOCK = re.compile(CLOCK)
_WALK = 64  # stamped lines of others that a search for one speaker's passes
_STRETCH = 1024  # bytes that are searched for a time of day at first; each further stretch is four times as long
_LITTLE = 160  # bytes that are searched at once
_PATIENCE = 4  # searches in vain after which a speaker is taken for one that gives no times
_SPEAKERS = 4096
_TAG = re.compile(r"(?:\[[A-Za-z_]{0,20}\d{1,7}\]:)+|\d{1,7}: ")
_PREFIX = 48  # bytes in which a CRI prefix names its stream


def lines_of_records(records: list[Record]) -> Iterator[Raw]:
    """Yield the lines of unwrapped records; one record may hold several."""
    for record in records:
        envelope = record if record.time is not None or record.labels or record.channel else None
        for start, stop in split(record.message):
            yield Raw(record.offset + start, record.number, record.message[start:stop], envelope, record.offset)


def opened(raw: Raw) -> Raw:
    """Take a whole CRI line out of its envelope, which is no more than a prefix; others stay as they are."""
    if raw.record is not None or b" std" not in raw.data[:_PREFIX]:
        return raw
    record = unwrap_line(raw.data, raw.offset, raw.number)[0]
    return raw if record.time is None or record.partial else raw._replace(data=record.message, record=record)


def tag_of(text: str) -> str:
    """Return the tags of ranks or tasks that a line begins with: equal ones are of one speaker."""
    found = _TAG.match(text)
    return found[0] if found else ""


@dataclass(slots=True)
class Told:
    """Whose older lines need not be read, by the tag that they begin with."""

    whole: set[str] = field(default_factory=set)  # of whom enough is known
    words: set[str] = field(default_factory=set)  # who has said other things for long: only a step is still of use
    all_words: bool = False  # as `words`, of everybody

    def __bool__(self) -> bool:
        return self.all_words or bool(self.whole or self.words)

    def wants(self, data: bytes) -> bool:
        """Tell whether a line is still of use."""
        tag = tag_of(data[:_PREFIX].decode("latin-1"))
        if tag in self.whole:
            return False
        return not (self.all_words or tag in self.words) or may_hold_step(data[len(tag) :])


class History:
    """The kept bytes of a stream as lines, newest first."""

    def __init__(self, kept: Kept, reader: LineReader) -> None:
        self._kept = kept
        self._reader = reader
        self.anchor = (0, 1)  # a line's offset and number, as last counted
        self.enveloped = False
        self.dated: Callable[[int], Record] | None = None  # gives the record that the line at an offset came in, of streams put together

    def raws(self, before: int, low: int, numbered: bool = True) -> Iterator[Raw]:
        """Yield the lines that end before `before` (where a line begins) and begin at or after `low`, newest first."""
        if self.enveloped:
            yield from self._unwrapped(before, low)
            return
        number = self._number(before) if numbered else 0
        for start, text, ended in self._kept.lines_back(before, low):
            if numbered:
                number -= ended
            yield Raw(start, number, text, None, start)

    def block(self, before: int, low: int) -> bytes | None:
        """Return the bytes that `raws` would take to lines; None where lines have to be unwrapped first."""
        return None if self.enveloped else self._kept.slice(low, before)

    def clocked(self, before: int, low: int, has_clock: Callable[[bytes], bool]) -> Iterator[Raw]:
        """Yield, unnumbered, those of the plain lines between two offsets in which a time of day stands, newest first."""
        low = max(low, self._kept.start)
        size = _STRETCH
        if before - low > size and not has_clock(self._kept.slice(low, before)):
            return
        while before > low:
            first = self._kept.line_from(max(low, before - size), before)
            size *= 4
            if first >= before:  # a line longer than the stretch
                if before - size // 4 <= low:
                    return
                continue
            data = self._kept.slice(first, before)
            if len(data) <= _LITTLE or has_clock(data):
                yield from _clocked(data, first)
            before = first

    def _number(self, before: int) -> int:
        offset, number = self.anchor
        if before < offset:
            return number - count_ends(self._kept.slice(before, offset))
        return number + count_ends(self._kept.slice(offset, before))

    def _unwrapped(self, before: int, low: int) -> Iterator[Raw]:
        low = max(low, self._kept.start)
        data = self._kept.slice(low, before)
        first = 0 if low == 0 else data.find(b"\n") + 1
        unwrapper = Unwrapper(self._number(low + first) - 1)
        records = unwrapper.feed(data[first:], low + first)
        yield from reversed(list(lines_of_records(records)))

    def lines(self, before: int, low: int, told: Told | None = None) -> Iterator[ReadLine]:
        """Yield the same lines, read, but for those that are of no more use by then."""
        for raw in self.raws(before, low):
            if told is None or not told or told.wants(raw.data):
                yield self.read(raw)

    def read(self, raw: Raw, focus: int = 0) -> ReadLine:
        """Read one line; `focus` is a byte of it that must survive cutting."""
        inner = opened(raw)
        if inner.record is None and self.dated is not None:
            inner = inner._replace(record=self.dated(inner.offset))
        focus = max(0, focus - len(raw.data) + len(inner.data))
        return self._reader.read(inner.data, inner.offset, inner.number, inner.record, focus)


def _clocked(data: bytes, offset: int) -> Iterator[Raw]:
    """Yield the lines of whole lines in which a time of day stands, last one first."""
    places = [found.start() for found in _CLOCK.finditer(data)]
    start = len(data)
    for place in reversed(places):
        if place < start:
            start = line_start(data, place)
            yield Raw(offset + start, 0, data[start : line_stop(data, place, len(data))], None, offset + start)


class NearTimes:
    """Find the nearest earlier line of a speaker that gives the time.

    Searches come in the order of the stream. What one search read the next does not read again, so that however many lines ask,
    every byte is looked at about once.
    """

    def __init__(self, history: History, kept: Kept, has_clock: Callable[[bytes], bool], distance: int) -> None:
        self._history, self._kept, self._has_clock, self._distance = history, kept, has_clock, distance
        self._low = self._high = 0  # what is known: every stamped line between these offsets
        self._known: dict[Any, tuple[int, Stamp]] = {}  # speaker -> its latest there; None: anybody's
        self._vain: dict[Any, int] = {}

    def find(self, before: int, line: ReadLine) -> Stamp | None:
        """Return the time given by the line of the same speaker nearest before offset `before`, else by anybody's."""
        if self._history.enveloped:
            return None  # the envelope says better when this line was written
        low = max(before - self._distance, self._kept.start)
        speaker = speaker_of(line.who)
        wanted = None if self._vain.get(speaker, 0) >= _PATIENCE else speaker
        self._learn(before, low, wanted)
        found = self._known.get(wanted)
        if wanted is not None:
            self._remember_vain(speaker, self._knows(wanted, low))
            if not self._knows(wanted, low):
                found = self._known.get(None)
        return found[1] if found is not None and found[0] >= low else None

    def _remember_vain(self, speaker: Any, found: bool) -> None:
        if found:
            self._vain.pop(speaker, None)
        elif len(self._vain) < _SPEAKERS:
            self._vain[speaker] = self._vain.get(speaker, 0) + 1

    def _learn(self, before: int, low: int, wanted: Any) -> None:
        """Read back from `before` to what is known, and beyond it, until the speaker is found."""
        if self._high < low or self._high > before:
            self._low = self._high = before
            self._known = {}
        fresh, reached, passed = self._walk(before, max(self._high, low), wanted, _WALK)
        if reached > self._high:  # found on the way: what lies between is not known
            self._known, self._low = fresh, reached
        else:
            self._known.update(fresh)
        self._high = before
        if self._low > low and not self._knows(wanted, low) and passed < _WALK:
            older, self._low, _ = self._walk(self._low, low, wanted, _WALK - passed)
            self._known = {**older, **self._known}
        if len(self._known) > _SPEAKERS:
            self._known = {None: self._known[None]}

    def _knows(self, wanted: Any, low: int) -> bool:
        found = self._known.get(wanted)
        return found is not None and found[0] >= low

    def _walk(self, before: int, floor: int, wanted: Any, most: int) -> tuple[dict[Any, tuple[int, Stamp]], int, int]:
        """Return the stamped lines met on the way back, how far the way went, and how many they were."""
        fresh: dict[Any, tuple[int, Stamp]] = {}
        passed = 0
        for raw in self._history.clocked(before, floor, self._has_clock):
            line = self._history.read(raw)
            if line.stamp.at is None:
                continue
            speaker = speaker_of(line.who)
            fresh.setdefault(None, (raw.offset, line.stamp))
            fresh.setdefault(speaker, (raw.offset, line.stamp))
            passed += 1
            if wanted in (speaker, None) or passed >= most:
                return fresh, raw.offset, passed
        return fresh, floor, passed

    def state(self) -> list[Any]:
        return [self._low, self._high, list(self._known.items()), list(self._vain.items())]

    def load(self, state: list[Any]) -> None:
        self._low, self._high, known, vain = state
        self._known = {_key(key): (offset, stamp) for key, (offset, stamp) in known}
        self._vain = {_key(key): count for key, count in vain}


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
