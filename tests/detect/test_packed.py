"""What streams and jobs are remembered by comes back exactly, whatever stood in a log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.detect import plain
from firstfault.detect.folding import Folds, Repeats
from firstfault.detect.packed import pack_engine, pack_observations, unpack_engine, unpack_observations
from firstfault.model import NO_TIME, Event, Fact, JobKey, Line, Observation, Progress, Stamp, Statement, Who

texts = st.sampled_from(["", "step 3", "\udcff", "é\0", "x" * 2000])
numbers = st.sampled_from([0, 7, -1, 10**30, 2.5, float("nan"), float("inf")])
floats = st.sampled_from([0.0, 2.5, float("nan"), float("-inf")])
stamps = st.sampled_from([NO_TIME, Stamp(1796000000.25, "line", 0.001, True)])
whos = st.builds(Who, rank=st.none() | st.integers(0, 9), node=st.none() | texts, agent=st.booleans())
lines = st.builds(Line, source=texts, number=st.just(3), text=texts)
jobs = st.builds(JobKey, job=texts, attempt=st.none() | st.just(2))
common: dict[str, Any] = {"id": texts, "job": jobs, "who": whos, "stream": texts, "offset": st.sampled_from([0, 2**62])}
values = st.recursive(
    numbers | texts | st.none() | st.booleans(), lambda inner: st.tuples(inner, inner) | st.dictionaries(texts, inner), max_leaves=4
)
statements = st.builds(Statement, kind=st.just("traceback"), exception=texts, message=texts, frames=st.just((("a.py", 1, "f"),)))
events = st.builds(
    Event,
    fingerprint=texts, symptom=texts, role=st.sampled_from(["initiating", "collateral"]), time=stamps, last=stamps,
    captures=st.dictionaries(texts, texts | numbers, max_size=2), lines=st.lists(lines, max_size=2).map(tuple),
    statement=st.none() | statements,
    **common,
)  # fmt: skip
observations = (
    events
    | st.builds(Fact, name=texts, time=stamps, values=st.dictionaries(texts, values, max_size=2), line=st.none() | lines, **common)
    | st.builds(
        Progress,
        first=stamps, last=stamps, lines=st.just(4), last_line=st.none() | lines, step=st.none() | floats, phase=texts,
        steps=st.lists(st.tuples(floats, st.none() | floats), max_size=3).map(tuple), values=st.dictionaries(texts, floats, max_size=2),
        series=st.dictionaries(texts, st.lists(st.none() | floats, max_size=2).map(tuple), max_size=2),
        **common,
    )
)  # fmt: skip


@given(st.lists(observations, max_size=4))
def test_observations_come_back_exactly(told: list[Observation]) -> None:
    """Tuples stay tuples, integers integers, and NaN is no null; so do they as tagged JSON values, which hold what else there is."""
    assert repr(unpack_observations(pack_observations(told))) == repr(told)
    assert repr(unpack_observations(plain.pack_json([plain.dump(one) for one in told]))) == repr(told)


@given(st.lists(events, max_size=6), st.lists(st.tuples(texts, whos, st.dictionaries(texts, values, max_size=2)), max_size=4))
def test_an_engine_goes_on_as_it_would_have(seen: list[Event], facts: list[tuple[str, Who, dict[str, Any]]]) -> None:
    """Events are counted on, and facts are repeats, after the state went through text."""
    folds, repeats = Folds(), Repeats()
    for event in seen:
        folds.add(event)
    for name, who, told in facts:
        repeats.passes(JobKey(), name, who, told, "first")
    other = {"times": [0, 0, [], []], "opened": {7: Stamp(1.5)}, "look": [1, 2], "faults": 0, "dropped_blocks": 0}
    state = unpack_engine(pack_engine({"folds": folds.state(), "repeats": repeats.state(), **other}))
    again, still = Folds(), Repeats()
    again.load(state["folds"])
    still.load(state["repeats"])
    assert dict(state["opened"]) == {7: Stamp(1.5)}
    assert repr(again.state()) == repr(folds.state())
    assert repr(list(again._folds)) == repr(list(folds._folds))
    assert repr(still.state()) == repr(repeats.state())


@pytest.mark.parametrize("text", ["m:", "m:AAAA", "AAAA", "m:" + plain.pack(b"\x91\x92\xa1z\xc0"), "m:" + plain.pack(b"\x91\x92\xa1e\xc0")])
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_observations(text)
    with pytest.raises(ValueError, match=r"."):
        unpack_engine(text)
