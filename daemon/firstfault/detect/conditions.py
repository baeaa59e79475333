"""Judge the conditions of a symptom that need more than its own stream: the correlator asks, the detector never does."""

from __future__ import annotations

from firstfault.detect.scene import SEEN, Scene
from firstfault.model import Event, Fact
from firstfault.rules.catalogue import Symptom


def pending(symptom: Symptom) -> bool:
    """Tell whether an event of this symptom counts only once `holds` says so."""
    return bool(symptom.context or symptom.sequence or symptom.count or symptom.absent)


def holds(event: Event, symptom: Symptom, scene: Scene) -> bool:
    """Tell whether every condition of an event's symptom holds, given all events and facts of its attempt.

    Where a time is unknown the condition is judged by the order in a common stream, and fails across streams.
    """
    return (
        all(any(scene.knows(name, event) for name in either.split("|")) for either in symptom.context)
        and _sequence(event, symptom, scene)
        and _count(event, symptom, scene)
        and _absent(event, symptom, scene)
    )


def _sequence(event: Event, symptom: Symptom, scene: Scene) -> bool:
    rule = symptom.sequence
    if rule is None:
        return True
    earlier = scene.around((event.fingerprint, rule.after), event, rule.within, rule.on)
    return any(_within(other, event, rule.within) for other in earlier if other.id != event.id)


def _count(event: Event, symptom: Symptom, scene: Scene) -> bool:
    rule = symptom.count
    if rule is None:
        return True
    before = after = 0
    for other in scene.around((event.fingerprint, event.symptom), event, rule.within, rule.on):
        times = other.count if isinstance(other, Event) else 1
        before += times if other.id == event.id or _within(other, event, rule.within) else 0
        after += times if other.id == event.id or _within(event, other, rule.within) else 0
        if max(before, after) >= rule.at_least:
            return True
    return False


def _absent(event: Event, symptom: Symptom, scene: Scene) -> bool:
    rule = symptom.absent
    if rule is None:
        return True
    return not any(_within(event, fact, rule.within) for fact in scene.around((SEEN, rule.pattern), event, rule.within, rule.on))


def _within(first: Event | Fact, second: Event | Fact, seconds: float) -> bool:
    """Tell whether `second` follows `first` within a time; equal places count as following."""
    if first.stream == second.stream and first.offset > second.offset:
        return False
    if first.time.at is None or second.time.at is None:
        return first.stream == second.stream
    slack = first.time.precision + second.time.precision
    return -slack <= second.time.at - first.time.at <= seconds + slack
