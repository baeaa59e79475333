"""While lines of some ranks still wait to be read, nobody of them is called silent; when they were read, all is judged again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstfault.correlate.incident import Correlator, Limits
from firstfault.model import JobKey, Who
from firstfault.rules.load import load
from tests.correlate.build import event
from tests.correlate.test_clues import spoke, waits

NOW = 1_800_000_701.0


@pytest.fixture
def correlator():
    one = Correlator(load())
    one.observe([*spoke(*range(12)), *waits(*(rank for rank in range(12) if rank not in (3, 5)))], NOW)
    return one


def blamed(correlator):
    (incident,) = correlator.incidents()
    return incident.verdict.ranks, incident.silent_ranks


def test_a_rank_with_unread_lines_is_not_silent(correlator):
    """Two ranks have said nothing of a time-out; lines of one of them wait: only the other one is silent."""
    correlator.advance(NOW, {"r5", "other"})
    assert blamed(correlator) == ((3,), (3,))


def test_what_was_read_in_the_meantime_is_judged_though_it_says_nothing(correlator):
    """The waiting lines turn out to say nothing of it, so that nothing is observed: the rank is silent after all."""
    correlator.advance(NOW, {"r5"})
    correlator.advance(NOW + 1.0, {"other"})
    assert blamed(correlator) == ((3, 5), (3, 5))


def test_a_time_out_among_the_waiting_lines_clears_its_rank(correlator):
    """The order of reading changes no answer."""
    correlator.advance(NOW, {"r5", "r3"})
    assert blamed(correlator) == ((), ())
    correlator.observe(waits(5), NOW + 1.0)
    correlator.advance(NOW + 1.0)
    assert blamed(correlator) == ((3,), (3,))


def test_a_rank_never_heard_of_may_stand_in_what_waits():
    """Of a job of five ranks, whose console holds all of them, the last was never read; its first lines may be among those that wait."""
    one = Correlator(load(), Limits(world_size=5))
    one.observe([replace(said, stream="console") for said in (*spoke(0, 1, 2, 3), *waits(0, 1, 2, 3))], NOW)
    one.advance(NOW, {"console"})
    assert blamed(one) == ((), ())
    one.advance(NOW + 1.0)
    assert blamed(one) == ((4,), (4,))


def test_the_same_rank_is_named_whatever_was_unread(correlator):
    """The last judgement is that of somebody who saw everything at once."""
    other = Correlator(load())
    every = [*spoke(*range(12)), *waits(*(rank for rank in range(12) if rank != 7))]
    for number, one in enumerate(every):
        other.observe([one], NOW)
        other.advance(NOW + number / 100, {f"r{rank}" for rank in range(number, 12)})
    other.advance(NOW + 2.0)
    assert blamed(other) == ((7,), (7,))


def _failed_and_flooding(known: bool) -> Correlator:
    """A small job failed, and of another job lines wait without end; `known` says whether its stream was ever heard."""
    one = Correlator(load())
    one.observe([*spoke(0, 1), event("cuda-out-of-memory", Who(rank=1), 60.0, role="either", stream="r1")], NOW)
    if known:
        one.last_words([replace(said, job=JobKey(job="flood"), stream="flood") for said in spoke(0)], NOW)
    return one


@pytest.mark.parametrize("known", [True, False])
def test_the_flood_of_one_job_does_not_hold_up_the_verdict_of_another(known):
    """Its lines were read up to this very moment, so its quiet counts; unless somebody may speak for it in a stream not heard yet."""
    one = _failed_and_flooding(known)
    told = [change for second in range(40) for change in one.advance(NOW, {"flood"}, clear=NOW + second)]
    settled = [change.incident.key.job for change in told if change.kind == "settled"]
    assert settled == (["t"] if known else [])
    assert [one.key.job for one in one.incidents()] == ["t"]


def test_a_job_of_which_lines_wait_is_not_quiet():
    """What waits may hold the words that change its verdict."""
    one = _failed_and_flooding(known=True)
    one.last_words(spoke(0, 1), NOW)
    told = [change for second in range(40) for change in one.advance(NOW, {"r1"}, clear=NOW + second)]
    assert [change.kind for change in told] == ["opened"]
