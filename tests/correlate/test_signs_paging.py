"""An incident that ordinary lines opened pages like any other: it is news, and what follows revises it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench import simulator
from bench.vitals import play
from firstfault.correlate.incident import Correlator
from firstfault.model import FAULT_ROLES
from firstfault.rules.load import load
from tests.correlate.build import event


@pytest.fixture(scope="module")
def rules():
    return load()


def stalled(rules) -> tuple[Correlator, list, float]:
    """Return a correlator that has told of a stall of 8 ranks, its changes, and when."""
    told, correlator = play.make(5, "stall-rank", 8), Correlator(rules)
    changes: list = []
    now = max(play.START, told.truth.begins - simulator.BEFORE_STEPS * told.job.step_secs)
    while not changes and now < told.truth.ends:
        now += 5.0
        correlator.last_words([seen for rank in range(8) if (seen := told.seen(rank, now)) is not None], now)
        changes += correlator.advance(now)
    return correlator, changes, now


def test_a_stall_is_news_and_settles_at_once(rules):
    """However long a pause had to be waited for, its incident is not taken for history."""
    _, changes, _ = stalled(rules)
    assert [change.kind for change in changes] == ["opened", "settled"]
    assert not changes[0].incident.historic
    assert changes[0].incident.opened_at is not None


def test_the_failure_behind_it_revises_the_same_incident(rules):
    """When the rank that held all up prints its error, the incident names that; nobody is paged about a second one."""
    correlator, changes, now = stalled(rules)
    rank = changes[0].incident.verdict.ranks[0]
    fault = event("cuda-out-of-memory", play.Who(rank=rank, node="node-0"), now + 5 - 1_800_000_000.0, stream=f"rank{rank}.log")
    assert fault.role in FAULT_ROLES
    job = play.JobKey("default", "sim")
    correlator.observe([type(fault)(fault.id, *(getattr(fault, name) for name in ("fingerprint", "symptom", "role")), job,
                                    *(getattr(fault, name) for name in ("who", "time", "stream", "offset")))], now + 5)  # fmt: skip
    after = correlator.advance(now + 6)
    assert [(change.kind, change.incident.fingerprint, change.incident.id) for change in after] == [
        ("revised", "cuda-out-of-memory", changes[0].incident.id)
    ]


def test_a_restart_neither_ends_a_stall_nor_forgets_the_pace(rules):
    """Taken up from the JSON of a snapshot, the incident stays as it is while nothing moves, and is over with the next step."""
    correlator, _, now = stalled(rules)
    again = Correlator(rules)
    again.restore(json.loads(json.dumps(correlator.snapshot())))
    (before,), (after,) = correlator._runs.values(), again._runs.values()
    assert after.watch.pace.line_secs == before.watch.pace.line_secs
    told = play.make(5, "stall-rank", 8)
    for second in range(5, 60, 5):
        again.last_words([seen for rank in range(8) if (seen := told.seen(rank, now + second)) is not None], now + second)
        assert [change.kind for change in again.advance(now + second) if change.kind != "updated"] == []
    told.steps.append(replace(told.steps[-1], number=told.steps[-1].number + 1, at=now + 61))
    told.times.append(now + 61)
    told.ahead = None
    again.last_words([seen for rank in range(8) if (seen := told.seen(rank, now + 65)) is not None], now + 65)
    assert [change.kind for change in again.advance(now + 65)] == ["recovered"]
