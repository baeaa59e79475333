"""Conditions asked through an index give what asking every observation gives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.detect.conditions import holds, pending
from firstfault.detect.scene import SEEN, Scene
from firstfault.model import Event, Fact, JobKey, Stamp, Who
from firstfault.rules.catalogue import Absent, Count, Sequence, Symptom

ON = ("rank", "node", "any")
whos = st.builds(Who, rank=st.sampled_from([None, 0, 1]), local_rank=st.sampled_from([None, 0]), node=st.sampled_from([None, "a", "b"]))
stamps = st.one_of(
    st.just(Stamp()), st.builds(Stamp, at=st.integers(0, 20).map(float), source=st.just("line"), precision=st.sampled_from([0.0, 1.0]))
)
streams = st.sampled_from(["s", "t", "u"])


@st.composite
def attempts(draw):
    """Return the events and facts of a small attempt; ids and offsets are unique."""
    count = draw(st.integers(1, 12))
    events = [
        Event(f"e{index}", draw(st.sampled_from(["f", "g"])), draw(st.sampled_from(["one", "two"])), "initiating", JobKey(), draw(whos),
              draw(stamps), draw(streams), index * 10 % 70, count=draw(st.integers(1, 3)))
        for index in range(count)
    ]  # fmt: skip
    facts = [
        Fact(f"f{index}", name, JobKey(), draw(whos), draw(stamps), draw(streams), index * 15 % 70, values)
        for index, (name, values) in enumerate(
            draw(
                st.lists(st.sampled_from([("layout", {"name": "fsdp"}), ("layout", {"name": "amp"}), (SEEN, {"pattern": "p"})]), max_size=6)
            )
        )
    ]
    return events, facts


symptoms = st.builds(
    Symptom,
    fingerprint=st.just("f"),
    id=st.just("one"),
    role=st.just("initiating"),
    context=st.sampled_from([(), ("fsdp",), ("fsdp", "amp|g"), ("missing|amp",)]),
    sequence=st.one_of(st.none(), st.builds(Sequence, st.just("two"), st.sampled_from([0.0, 5.0]), st.sampled_from(ON))),
    count=st.one_of(st.none(), st.builds(Count, st.integers(2, 4), st.sampled_from([2.0, 10.0]), st.sampled_from(ON))),
    absent=st.one_of(st.none(), st.builds(Absent, st.just("p"), st.sampled_from([0.0, 5.0]), st.sampled_from(ON))),
)


@settings(max_examples=200)
@given(attempts(), symptoms)
def test_the_index_answers_as_a_look_at_everything_does(attempt, symptom):
    """For any attempt and any conditions, an event holds by the index exactly when it holds by comparing it with all others."""
    events, facts = attempt
    scene = Scene([symptom], events, facts)
    for event in events:
        if event.fingerprint == "f" and event.symptom == "one":
            assert holds(event, symptom, scene) == slow(event, symptom, events, facts)


def test_a_symptom_without_conditions_is_never_pending():
    """Only symptoms that look beyond their stream are asked about."""
    assert not pending(Symptom("f", "one", "initiating"))
    assert pending(Symptom("f", "one", "initiating", context=("fsdp",)))


# the slow, obvious version


def slow(event: Event, symptom: Symptom, events: list[Event], facts: list[Fact]) -> bool:
    same = [one for one in events if (one.fingerprint, one.symptom) == (event.fingerprint, event.symptom)]
    known = all(any(seen_before(name, event, events, facts) for name in either.split("|")) for either in symptom.context)
    rule = symptom.sequence
    ordered = rule is None or any(
        one.fingerprint == event.fingerprint
        and one.symptom == rule.after
        and related(one, event, rule.on)
        and within(one, event, rule.within)
        for one in events
    )
    often = symptom.count is None or enough(event, symptom.count, same)
    gone = symptom.absent
    followed = gone is not None and any(
        fact.name == SEEN and fact.values["pattern"] == gone.pattern and related(fact, event, gone.on) and within(event, fact, gone.within)
        for fact in facts
    )
    return known and ordered and often and not followed


def enough(event: Event, rule: Count, same: list[Event]) -> bool:
    near = [one for one in same if related(one, event, rule.on)]
    before = sum(one.count for one in near if one.id == event.id or within(one, event, rule.within))
    after = sum(one.count for one in near if one.id == event.id or within(event, one, rule.within))
    return max(before, after) >= rule.at_least


def seen_before(name: str, event: Event, events: list[Event], facts: list[Fact]) -> bool:
    found = [one for one in facts if one.name == "layout" and one.values["name"] == name] + [
        one for one in events if one.fingerprint == name
    ]
    return any(not later(one, event) for one in found)


def later(one: Event | Fact, event: Event) -> bool:
    if one.stream == event.stream:
        return one.offset > event.offset
    if one.time.at is None or event.time.at is None:
        return False
    return one.time.at > event.time.at + one.time.precision + event.time.precision


def within(first: Event | Fact, second: Event | Fact, seconds: float) -> bool:
    if first.stream == second.stream and first.offset > second.offset:
        return False
    if first.time.at is None or second.time.at is None:
        return first.stream == second.stream
    slack = first.time.precision + second.time.precision
    return -slack <= second.time.at - first.time.at <= seconds + slack


def related(one: Event | Fact, other: Event | Fact, on: str) -> bool:
    if on == "any":
        return True
    if on == "node":
        return one.who.node == other.who.node if one.who.node and other.who.node else one.stream == other.stream
    return process(one.who) == process(other.who) if process(one.who) and process(other.who) else one.stream == other.stream


def process(who: Who):
    if who.rank is not None:
        return "rank", who.rank
    return ("local", who.node, who.local_rank) if who.local_rank is not None else None
