"""Fold what one speaker says over and over, so that a storm of equal lines is counted and not repeated."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from firstfault.model import Event, JobKey, Stamp, Who

FREE = 3  # equal events that are reported one by one
FREE_FACTS = 8
GAP_SECONDS = 60.0  # of silence, after which an equal event is news again
GAP_BYTES = 256 * 1024  # the same where no time is known
MOST = 2048  # things remembered a stream; the oldest are forgotten
_SIMPLE = frozenset((str, int, float, bool, type(None)))
_CHANGING = frozenset({"step"})  # values by which a thing said again at every step differs
FRESH = frozenset({"start", "restart"})  # facts after which everything is news again: another attempt has begun


def speaker_of(who: Who) -> tuple[Any, ...] | None:
    """Return what tells one speaker of a stream from another; None where a line does not say."""
    if who.rank is not None:
        return ("rank", who.rank)
    if who.local_rank is not None:
        return ("local", who.node, who.local_rank)
    return ("agent", who.node) if who.agent else None


@dataclass(slots=True)
class _Fold:
    seen: int
    event: Event  # the one that counts the others
    last: Stamp
    offset: int
    dirty: bool = False  # counted further since it was last reported


class Folds:
    """Equal events of a stream: the first few pass, the others are counted in the last of these.

    A counting event is reported again, with the same id and a higher count, whenever its count has doubled.
    """

    def __init__(self) -> None:
        self._folds: dict[Hashable, _Fold] = {}

    def add(self, event: Event) -> list[Event]:
        """Return what has to be reported now that `event` was seen."""
        key = _key(event)
        fold = self._folds.pop(key, None)
        if fold is not None and not _apart(fold, event):
            self._folds[key] = fold  # newest last
            return _count(fold, event)
        self._folds[key] = _Fold(1, event, event.time, event.offset)
        found = [*_final(fold), event] if fold is not None else [event]
        if len(self._folds) > MOST:
            found += _final(self._folds.pop(next(iter(self._folds))))
        return found

    def flush(self) -> Iterator[Event]:
        """Yield the counts that were not reported yet."""
        for fold in self._folds.values():
            yield from _final(fold)
            fold.dirty = False

    def fresh(self) -> Iterator[Event]:
        """Forget everything: what comes now is another attempt."""
        yield from self.flush()
        self._folds.clear()

    @property
    def dirty(self) -> bool:
        return any(fold.dirty for fold in self._folds.values())

    def offsets(self) -> Iterator[int]:
        """Yield where in the stream those events and their lines stand that may be reported again."""
        for fold in self._folds.values():
            yield fold.event.offset
            yield from (line.offset for line in fold.event.lines)

    def state(self) -> list[Any]:
        return [(fold.seen, fold.event, fold.last, fold.offset, fold.dirty) for fold in self._folds.values()]

    def load(self, state: list[Any]) -> None:
        self._folds = {_key(event): _Fold(seen, event, *rest) for seen, event, *rest in state}


def _key(event: Event) -> Hashable:
    """Return what equal events share."""
    return event.job, event.fingerprint, event.symptom, speaker_of(event.who), event.who.pid, _plain(event.captures)


def _count(fold: _Fold, event: Event) -> list[Event]:
    fold.seen += 1
    fold.offset, fold.last = event.offset, event.time if event.time.at is not None else fold.last
    if fold.seen <= FREE:
        fold.event = event
        return [event]
    fold.event = replace(fold.event, count=fold.event.count + 1, last=event.time)
    count = fold.event.count
    fold.dirty = count & (count - 1) != 0
    return [] if fold.dirty else [fold.event]


def _final(fold: _Fold) -> list[Event]:
    return [fold.event] if fold.dirty else []


def _apart(fold: _Fold, event: Event) -> bool:
    if fold.last.at is not None and event.time.at is not None:
        return abs(event.time.at - fold.last.at) > GAP_SECONDS
    return event.offset - fold.offset > GAP_BYTES


class Repeats:
    """Equal facts of a stream: those that add nothing are counted and dropped."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, int] = {}
        self.dropped = 0

    def passes(self, job: JobKey, name: str, who: Who, values: Mapping[str, Any], repeat: str) -> bool:
        """Tell whether a fact is news. `repeat` is what its reader says of equal ones: "first", "newest" or "every"."""
        key = (job, name, who, _plain(values))
        count = self._seen.pop(key, 0) + 1
        self._seen[key] = count
        if len(self._seen) > MOST:
            del self._seen[next(iter(self._seen))]
        free = FREE_FACTS if repeat == "every" else 1
        news = count <= free or (repeat != "first" and count & (count - 1) == 0)
        self.dropped += not news
        return news

    def fresh(self) -> None:
        self._seen.clear()

    def state(self) -> list[Any]:
        return [list(self._seen.items()), self.dropped]

    def load(self, state: list[Any]) -> None:
        items, self.dropped = state
        self._seen = {_hashable(key): count for key, count in items}


def _plain(values: Mapping[str, Any]) -> Hashable:
    if not values:
        return ()
    return tuple([(name, value if type(value) in _SIMPLE else _hashable(value)) for name, value in values.items() if name not in _CHANGING])


def _hashable(value: Any) -> Hashable:
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return tuple((_hashable(key), _hashable(item)) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(_hashable(item) for item in value)
    return value
