"""Judge the conditions of a symptom that need more than its own stream: the correlator asks, the detector never does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from firstfault.model import Event, Fact, Who
from firstfault.rules.catalogue import Symptom

SEEN = "seen"  # fact: a line matched the pattern of some `absent` condition
_NAMED = ("layout", "version", "setting")


def pending(symptom: Symptom) -> bool:
    """Tell whether an event of this symptom counts only once `holds` says so."""
    return bool(symptom.context or symptom.sequence or symptom.count or symptom.absent)


def holds(event: Event, symptom: Symptom, events: Iterable[Event], facts: Iterable[Fact]) -> bool:
    """Tell whether every condition of an event's symptom holds, given all events and facts of its attempt.

    Where a time is unknown the condition is judged by the order in a common stream, and fails across streams.
    """
    events, facts = list(events), list(facts)
    return (
        _context(event, symptom, events, facts)
        and _sequence(event, symptom, events)
        and _count(event, symptom, events)
        and _absent(event, symptom, facts)
    )


def _context(event: Event, symptom: Symptom, events: Sequence[Event], facts: Sequence[Fact]) -> bool:
    return all(any(_known(name, event, events, facts) for name in either.split("|")) for either in symptom.context)


def _known(name: str, event: Event, events: Sequence[Event], facts: Sequence[Fact]) -> bool:
    """A layout or version holds for the whole attempt; only what is known to be later does not count."""
    named = (fact for fact in facts if fact.name == name or (fact.name in _NAMED and fact.values.get("name") == name))
    return any(not _after(one, event) for one in (*named, *(other for other in events if other.fingerprint == name)))


def _sequence(event: Event, symptom: Symptom, events: Sequence[Event]) -> bool:
    rule = symptom.sequence
    if rule is None:
        return True
    return any(
        other.fingerprint == event.fingerprint
        and other.symptom == rule.after
        and _related(other, event, rule.on)
        and _within(other, event, rule.within)
        for other in events
        if other.id != event.id
    )


def _count(event: Event, symptom: Symptom, events: Sequence[Event]) -> bool:
    rule = symptom.count
    if rule is None:
        return True
    same = [
        other
        for other in events
        if (other.fingerprint, other.symptom) == (event.fingerprint, event.symptom) and _related(other, event, rule.on)
    ]
    before = sum(other.count for other in same if other.id == event.id or _within(other, event, rule.within))
    after = sum(other.count for other in same if other.id == event.id or _within(event, other, rule.within))
    return max(before, after) >= rule.at_least


def _absent(event: Event, symptom: Symptom, facts: Sequence[Fact]) -> bool:
    rule = symptom.absent
    if rule is None:
        return True
    return not any(
        fact.name == SEEN
        and fact.values.get("pattern") == rule.pattern
        and _related(fact, event, rule.on)
        and _within(event, fact, rule.within)
        for fact in facts
    )


def _after(one: Event | Fact, event: Event) -> bool:
    if one.stream == event.stream:
        return one.offset > event.offset
    if one.time.at is None or event.time.at is None:
        return False
    return one.time.at > event.time.at + one.time.precision + event.time.precision


def _within(first: Event | Fact, second: Event | Fact, seconds: float) -> bool:
    """Tell whether `second` follows `first` within a time; equal places count as following."""
    if first.stream == second.stream and first.offset > second.offset:
        return False
    if first.time.at is None or second.time.at is None:
        return first.stream == second.stream
    slack = first.time.precision + second.time.precision
    return -slack <= second.time.at - first.time.at <= seconds + slack


def _related(one: Event | Fact, other: Event | Fact, on: str) -> bool:
    """Tell whether two observations are of the same rank, or node, as far as their own lines say."""
    if on == "any":
        return True
    if on == "node":
        return one.who.node == other.who.node if one.who.node and other.who.node else one.stream == other.stream
    return _speaker(one.who) == _speaker(other.who) if _named(one.who) and _named(other.who) else one.stream == other.stream


def _named(who: Who) -> bool:
    return who.rank is not None or who.local_rank is not None


def _speaker(who: Who) -> tuple[object, ...]:
    return ("rank", who.rank) if who.rank is not None else ("local", who.node, who.local_rank)
