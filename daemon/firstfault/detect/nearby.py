"""Judge `near` conditions: a second pattern of the same speaker within some lines, before or after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firstfault.detect.confirm import encoded
from firstfault.detect.folding import speaker_of
from firstfault.detect.history import History
from firstfault.detect.kept import line_start
from firstfault.detect.plan import Program
from firstfault.model import Event
from firstfault.text.lines import ReadLine

MOST = 64  # events that wait at once in one stream
PATIENCE = 400  # lines of the stream after which an event stops waiting
_END = re.compile(rb"\r\n|\n|\r")
_TAG = 64  # bytes of a line in which its speaker's tag stands


@dataclass(slots=True)
class _Waiting:
    event: Event
    program: Program
    speaker: Any
    tag: bytes  # that stands before the speaker's lines, if any
    lines: int  # of the speaker that may still come
    idle: int = 0


class Nearby:
    """Looks for second patterns before an event, and lets the event wait for those that may come after it."""

    def __init__(self, history: History, distance: int) -> None:
        self._history = history
        self._distance = distance
        self._waiting: list[_Waiting] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def ask(self, event: Event, program: Program, line: ReadLine, within: int) -> bool:
        """Tell whether the pattern stands close before the line, or on it; if not, the event waits for what follows."""
        if program.find(encoded(line.message)) is not None or self._before(program, line, within):
            return True
        self._waiting = [*self._waiting, _Waiting(event, program, speaker_of(line.who), line.speaker.encode(), within)][-MOST:]
        return False

    def _before(self, program: Program, line: ReadLine, within: int) -> bool:
        """Look through the speaker's lines before `line`; only those that seem to match are read."""
        speaker, tag, own = speaker_of(line.who), line.speaker.encode(), 0
        low = line.offset - self._distance
        block = None if program.anchored else self._history.block(line.offset, low)
        if block is not None and program.find(block) is None:
            return False
        for raw in self._history.raws(line.offset, low, numbered=False):
            if program.find(raw.data) is not None:
                earlier = self._history.read(raw)
                if speaker_of(earlier.who) == speaker and program.find(encoded(earlier.message)) is not None:
                    return True
            own += tag in raw.data[:_TAG]
            if own >= within:
                return False
        return False

    def expects(self, data: bytes) -> bool:
        """Tell whether a raw line may be what an event waits for; if not, it is counted as it is."""
        if any(one.program.find(data) is not None for one in self._waiting):
            return True
        for one in self._waiting:
            one.lines -= one.tag in data[:_TAG]
            one.idle += 1
        self._drop()
        return False

    def pass_over(self, data: bytes, at: int, stop: int) -> int:
        """Count the whole lines data[at:stop] as `expects` would; stop before one that may be awaited, or when nobody waits any more."""
        if any(one.program.anchored for one in self._waiting):
            return at  # matches on a line as it would not among others
        block = data[at:stop]
        for one in self._waiting:
            found = one.program.find(block)
            if found is not None:
                block = block[: line_start(block, found[0][0])]
        start = 0
        for end in _END.finditer(block):
            tag = block[start : min(start + _TAG, end.start())]
            start = end.end()
            for one in self._waiting:
                one.lines -= one.tag in tag
                one.idle += 1
            self._drop()
            if not self._waiting:
                break
        return at + start

    def offer(self, line: ReadLine) -> Iterator[Event]:
        """Take a later line; yield the events whose condition it fulfils."""
        speaker, message = speaker_of(line.who), encoded(line.message)
        for one in list(self._waiting):
            one.idle += 1
            if one.speaker == speaker:
                one.lines -= 1
                if one.program.find(message) is not None:
                    self._waiting.remove(one)
                    yield one.event
        self._drop()

    def _drop(self) -> None:
        self._waiting = [one for one in self._waiting if one.lines > 0 and one.idle <= PATIENCE]

    def close(self) -> None:
        """Stop waiting."""
        self._waiting = []
