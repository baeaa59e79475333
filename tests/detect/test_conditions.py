"""Conditions across streams: what a symptom needs besides its own line."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from firstfault.detect.conditions import holds, pending
from firstfault.detect.scene import SEEN, Scene
from firstfault.model import NO_TIME, Event, Fact, JobKey, Stamp, Who
from firstfault.rules.catalogue import Absent, Count, Sequence, Symptom

PLAIN = Symptom("entry", "line", "initiating", any=("x",))


def event(at: float | None = 100.0, rank: int | None = 0, offset: int = 1000, symptom: str = "line", **given: Any) -> Event:
    time = NO_TIME if at is None else Stamp(at, "line", 0.001)
    stream = given.pop("stream", f"rank{rank}")
    name = f"{stream}@{offset}/entry/{symptom}"
    return Event(name, "entry", symptom, "initiating", JobKey(), Who(rank=rank, **given), time, stream, offset)


def fact(kind: str, at: float | None = 90.0, rank: int | None = 0, offset: int = 0, **values: Any) -> Fact:
    time = NO_TIME if at is None else Stamp(at, "line", 0.001)
    return Fact(f"rank{rank}@{offset}/{kind}", kind, JobKey(), Who(rank=rank), time, f"rank{rank}", offset, values)


def told(one: Event, symptom: Symptom, events: list[Event], facts: list[Fact]) -> bool:
    return holds(one, symptom, Scene([symptom], events, facts))


def test_a_symptom_without_conditions_is_not_pending() -> None:
    """Only context, sequence, count and absence need other streams."""
    assert not pending(PLAIN)
    assert pending(dataclasses.replace(PLAIN, context=("fsdp",)))
    assert pending(dataclasses.replace(PLAIN, count=Count(2, 60, "rank")))


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        ([fact("layout", rank=7, name="fsdp")], True),
        ([fact("layout", rank=7, name="ddp")], False),
        ([fact("layout", at=200.0, rank=7, name="fsdp")], False),
        ([fact("layout", at=None, rank=7, name="fsdp")], True),
        ([], False),
    ],
)
def test_context(facts: list[Fact], result: bool) -> None:
    """A layout stated anywhere in the attempt counts, unless it is known to be later."""
    assert told(event(), dataclasses.replace(PLAIN, context=("amp|fsdp",)), [event()], facts) is result


@pytest.mark.parametrize(
    ("first", "on", "result"),
    [
        (event(50.0, offset=10, symptom="first"), "rank", True),
        (event(30.0, offset=10, symptom="first"), "rank", False),
        (event(150.0, offset=2000, symptom="first"), "rank", False),
        (event(50.0, rank=1, symptom="first"), "rank", False),
        (event(50.0, rank=1, symptom="first"), "any", True),
        (event(50.0, offset=10, symptom="other"), "rank", False),
        (event(None, offset=10, symptom="first"), "rank", True),
        (event(None, rank=1, symptom="first"), "any", False),
    ],
)
def test_sequence(first: Event, on: str, result: bool) -> None:
    """The symptom named must have come before, in time, on the same rank where asked; without times a common stream's order counts."""
    assert told(event(), dataclasses.replace(PLAIN, sequence=Sequence("first", 60.0, on)), [first, event()], []) is result


def test_sequence_on_a_node() -> None:
    """On a node, another rank's symptom counts if both lines name the node."""
    rule = dataclasses.replace(PLAIN, sequence=Sequence("first", 60.0, "node"))
    assert told(event(node="a"), rule, [event(90.0, rank=1, symptom="first", node="a")], [])
    assert not told(event(node="a"), rule, [event(90.0, rank=1, symptom="first", node="b")], [])


@pytest.mark.parametrize(
    ("times", "result"), [([100.0], False), ([99.0, 100.0, 101.0], True), ([10.0, 50.0, 100.0], False), ([100.0, 120.0, 159.0], True)]
)
def test_count(times: list[float], result: bool) -> None:
    """So many within the time, before or after the event itself."""
    every = [event(at, offset=int(at * 10)) for at in times]
    rule = dataclasses.replace(PLAIN, count=Count(3, 60.0, "rank"))
    assert any(told(one, rule, every, []) for one in every) is result


def test_count_of_folded_events() -> None:
    """An event that counts others counts as many."""
    folded = dataclasses.replace(event(), count=3)
    assert told(folded, dataclasses.replace(PLAIN, count=Count(3, 60.0, "rank")), [folded], [])


@pytest.mark.parametrize(("at", "rank", "result"), [(130.0, 0, False), (190.0, 0, True), (130.0, 1, True), (90.0, 0, True)])
def test_absent(at: float, rank: int, result: bool) -> None:
    """The symptom does not count if what it forbids follows in time on the same rank."""
    seen = fact(SEEN, at, rank, offset=5000 if at > 100 else 10, pattern="link up")
    other = fact(SEEN, 130.0, 0, offset=5000, pattern="something else")
    assert told(event(), dataclasses.replace(PLAIN, absent=Absent("link up", 60.0, "rank")), [event()], [seen, other]) is result
