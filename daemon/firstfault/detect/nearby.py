"""Judge `near` conditions: a second pattern of the same speaker within some lines, before or after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firstfault.detect.folding import speaker_of
from firstfault.detect.history import History
from firstfault.model import Event, Who
from firstfault.rules.catalogue import Near

MOST = 64  # matches remembered and events waiting, each


class Nearby:
    """Remembers where the second patterns were seen, and the events that wait for one."""

    def __init__(self, history: History, distance: int) -> None:
        self._history = history
        self._distance = distance
        self._seen: list[tuple[str, Any, int, int]] = []  # pattern, speaker, offset, line number
        self._waiting: list[tuple[Event, Any, int, str, int]] = []  # event, speaker, line number, pattern, lines

    def ask(self, event: Event, rule: Near, who: Who, number: int) -> bool:
        """Tell whether the condition already holds; if not, the event waits for what follows."""
        speaker = speaker_of(who)
        for pattern, other, offset, line in self._seen:
            if pattern == rule.pattern and other == speaker and self._close(offset, line, event.offset, number, speaker, rule.within_lines):
                return True
        self._waiting = [*self._waiting, (event, speaker, number, rule.pattern, rule.within_lines)][-MOST:]
        return False

    def saw(self, pattern: str, who: Who, offset: int, number: int) -> Iterator[Event]:
        """Remember a match of a second pattern; yield the events that waited for it."""
        speaker = speaker_of(who)
        self._forget(offset)
        self._seen = [*self._seen, (pattern, speaker, offset, number)][-MOST:]
        for waiting in list(self._waiting):
            event, other, line, wanted, lines = waiting
            if wanted == pattern and other == speaker and self._close(event.offset, line, offset, number, speaker, lines):
                self._waiting.remove(waiting)
                yield event

    def _close(self, first: int, first_line: int, second: int, second_line: int, speaker: Any, lines: int) -> bool:
        """Count lines between two places; those of other speakers do not count."""
        if abs(second_line - first_line) <= lines:
            return True
        low, high = min(first, second), max(first, second)
        if speaker is None or high - low > self._distance:
            return False
        own = 0
        for line in self._history.lines(high, low):
            own += speaker_of(line.who) == speaker
            if own > lines:
                return False
        return True

    def _forget(self, offset: int) -> None:
        self._seen = [one for one in self._seen if one[2] >= offset - self._distance]
        self._waiting = [one for one in self._waiting if one[0].offset >= offset - self._distance]

    def state(self) -> list[Any]:
        return [self._seen, self._waiting]

    def load(self, state: list[Any]) -> None:
        self._seen, self._waiting = state
