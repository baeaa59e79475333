"""Index the events and facts of one attempt by what conditions ask for, so that thousands of askers stay cheap."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from firstfault.model import Event, Fact, Who
from firstfault.rules.catalogue import Symptom

SEEN = "seen"  # fact: a line matched the pattern of some `absent` condition
_NAMED = ("layout", "version", "setting")
Place = tuple[object, ...]


class Shelf:
    """Observations by time, and by stream for those whose order only their stream knows."""

    def __init__(self) -> None:
        self._all: list[Event | Fact] = []

    def add(self, one: Event | Fact) -> None:
        self._all.append(one)

    @cached_property
    def _timed(self) -> list[tuple[float, int, Event | Fact]]:
        return sorted((one.time.at, index, one) for index, one in enumerate(self._all) if one.time.at is not None)

    @cached_property
    def _slack(self) -> float:
        return max((one.time.precision for _, _, one in self._timed), default=0.0)

    @cached_property
    def _by_stream(self) -> dict[str, list[Event | Fact]]:
        """The observations of each stream in which somebody may ask without knowing a time."""
        found: dict[str, list[Event | Fact]] = defaultdict(list)
        for one in self._all:
            found[one.stream].append(one)
        return found

    @cached_property
    def _timeless(self) -> dict[str, list[Event | Fact]]:
        found: dict[str, list[Event | Fact]] = defaultdict(list)
        for one in self._all:
            if one.time.at is None:
                found[one.stream].append(one)
        return found

    def around(self, event: Event, seconds: float) -> Iterator[Event | Fact]:
        """Yield what may lie within so many seconds before or after an event, as far as times or a common stream tell."""
        at = event.time.at
        if at is None:
            yield from self._by_stream.get(event.stream, ())
            return
        reach = seconds + self._slack + event.time.precision + 1e-3  # rounding; whoever asks looks closely
        for index in range(bisect.bisect_left(self._timed, (at - reach,)), len(self._timed)):
            if self._timed[index][0] > at + reach:
                break
            yield self._timed[index][2]
        yield from self._timeless.get(event.stream, ())

    @cached_property
    def _firsts(self) -> tuple[dict[str, int], list[str], list[tuple[float, str]]]:
        """Each stream's first offset, the streams that hold something without a time, and each stream's earliest time."""
        offsets: dict[str, int] = {}
        earliest: dict[str, float] = {}
        for one in self._all:
            offsets[one.stream] = min(one.offset, offsets.get(one.stream, one.offset))
            if one.time.at is not None:
                begin = one.time.at - one.time.precision
                earliest[one.stream] = min(begin, earliest.get(one.stream, begin))
        return offsets, list(self._timeless)[:2], sorted((begin, stream) for stream, begin in earliest.items())[:2]

    def known_by(self, event: Event) -> bool:
        """Tell whether anything is here that is not known to come after an event."""
        offsets, timeless, earliest = self._firsts
        if offsets.get(event.stream, event.offset + 1) <= event.offset or any(stream != event.stream for stream in timeless):
            return True
        if event.time.at is None:
            return any(stream != event.stream for stream in offsets)
        latest = event.time.at + event.time.precision
        return any(begin <= latest for begin, stream in earliest if stream != event.stream)


class Scene:
    """What the conditions of some symptoms can ask of an attempt; nothing else of it is kept."""

    def __init__(self, asking: Iterable[Symptom], events: Iterable[Event], facts: Iterable[Fact]) -> None:
        self._named: dict[str, Shelf] = defaultdict(Shelf)
        self._at: dict[Place, Shelf] = defaultdict(Shelf)
        symptoms = list(asking)
        contexts = {name for symptom in symptoms for either in symptom.context for name in either.split("|")}
        asked = {symptom.fingerprint for symptom in symptoms if symptom.sequence or symptom.count}
        for event in events:
            if event.fingerprint in contexts:
                self._named[event.fingerprint].add(event)
            if event.fingerprint in asked:
                self._place((event.fingerprint, event.symptom), event)
        for fact in facts:
            self._take(fact, contexts)

    def _take(self, fact: Fact, contexts: set[str]) -> None:
        if fact.name in contexts:
            self._named[fact.name].add(fact)
        if fact.name in _NAMED and (name := str(fact.values.get("name"))) in contexts and name != fact.name:
            self._named[name].add(fact)
        elif fact.name == SEEN:
            self._place((SEEN, fact.values.get("pattern")), fact)

    def _place(self, kind: Place, one: Event | Fact) -> None:
        self._at[*kind, "any"].add(one)
        self._at[*kind, "stream", one.stream].add(one)
        if named(one.who):
            self._at[*kind, "rank", speaker(one.who)].add(one)
        if one.who.node:
            self._at[*kind, "node", one.who.node].add(one)

    def knows(self, name: str, event: Event) -> bool:
        """Tell whether a layout, version, setting or entry of this name was seen, and not only after an event."""
        shelf = self._named.get(name)
        return shelf is not None and shelf.known_by(event)

    def around(self, kind: Place, event: Event, seconds: float, on: str) -> Iterator[Event | Fact]:
        """Yield, once each, what is of one kind, of the same rank or node as an event, and may lie within so many seconds of it."""
        if on == "any":
            yield from self._shelf(event, seconds, *kind, "any")
            return
        own = speaker(event.who) if on == "rank" and named(event.who) else event.who.node if on == "node" else None
        if own:
            yield from self._shelf(event, seconds, *kind, on, own)
        for one in self._shelf(event, seconds, *kind, "stream", event.stream):
            if not own or not (named(one.who) if on == "rank" else one.who.node):
                yield one

    def _shelf(self, event: Event, seconds: float, *place: object) -> Iterator[Event | Fact]:
        shelf = self._at.get(place)
        return shelf.around(event, seconds) if shelf is not None else iter(())


def named(who: Who) -> bool:
    """Tell whether a line says which process speaks."""
    return who.rank is not None or who.local_rank is not None


def speaker(who: Who) -> Place:
    """Return what makes two lines speak of one process."""
    return ("rank", who.rank) if who.rank is not None else ("local", who.node, who.local_rank)
