"""The gauges of jobs: what they tell, that they are bounded, and that a flood of names hides nobody who was there before."""

from __future__ import annotations

import functools
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from firstfault.clock import ManualClock
from firstfault.model import Fact, Incident, JobKey, Progress, Stamp, Who
from firstfault.telemetry import Telemetry
from firstfault.telemetry.jobs import IDLE_SECS, Pulse
from firstfault.topology.pulse import Listening, pulse_of
from tests.app.make import NOW, incident, shipped

JOB = JobKey("ml", "pretrain")
FLOOD = 100_000


def said(rank: int | None, step: float = 7, at: float | None = NOW, *, local: int | None = None, pace: float = 2.0) -> Progress:
    """Return what a rank was last seen doing: three steps, `pace` seconds apart."""
    steps = tuple((step - back, None if at is None else at - back * pace) for back in (2, 1, 0))
    stamp = Stamp(at, "line", 0.001) if at is not None else Stamp()
    who = Who(rank=rank, local_rank=local, node="gpu-1")
    return Progress(f"s{rank}", JOB, who, f"s{rank}", stamp, stamp, 9, step=step, step_at=stamp, steps=steps)


@functools.cache
def failing_flood() -> list[Incident]:
    """Return the incidents of a hundred thousand jobs."""
    one = incident()
    return [replace(one, id=f"i{n}", key=JobKey("evil", f"a-{n}")) for n in range(FLOOD)]


def samples(telemetry: Telemetry) -> dict[str, dict[str, float]]:
    """Return the value of each series by metric and job; series without a job under an empty name."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(generate_latest(telemetry.registry).decode()):
        for one in family.samples:
            found.setdefault(one.name, {})[one.labels.get("training_job", "")] = one.value
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def telemetry(clock: ManualClock):
    with capture_logs():
        yield Telemetry(clock=clock, most_open_series=200)


def test_a_job_is_summed_up_by_what_its_ranks_said_last():
    """The step is the newest one by the ranks' stamps, its time the median of the last ones."""
    told = [said(0, 7), said(1, 8, NOW + 2), said(None, 900, None)]
    assert pulse_of(("ml", "pretrain"), told, 4) == Pulse("ml", "pretrain", 2, 4, 8, 2.0)


def test_local_and_global_names_of_the_same_processes_count_once():
    """Torchrun's file of local rank 1 in which rank 5 speaks is one process."""
    told = [said(None, local=0), said(None, local=1), said(4), said(5)]
    assert pulse_of(("ml", "pretrain"), told).ranks_heard == 2


def test_a_job_without_steps_or_ranks_is_told_without_them():
    """What a log does not show is left out, never guessed."""
    silent = replace(said(None), step=None, steps=(), step_at=Stamp())
    assert pulse_of(("ml", "pretrain"), [silent]) == Pulse("ml", "pretrain", 0, None, None, None)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.none() | st.floats(0, 2e9)), max_size=8))
def test_the_time_of_a_step_is_positive_whatever_stamps_say(steps):
    """Steps that count backwards, clocks that jump and missing stamps never give a negative or infinite time."""
    pulse = pulse_of(("ml", "pretrain"), [replace(said(0), steps=tuple(steps))])
    assert pulse.step_seconds is None or pulse.step_seconds > 0


def test_only_jobs_that_spoke_are_looked_at():
    """A silent job costs nothing, and its world size is known from its own words, after a restart too."""
    correlator = Listening(shipped())
    correlator.observe([Fact("f1", "world-size", JOB, Who(), Stamp(NOW), "s0", 0, {"n": 4})])
    correlator.last_words([said(0), said(1)])
    assert correlator.pulses() == [Pulse("ml", "pretrain", 2, 4, 7, 2.0)]
    assert correlator.pulses() == []
    again = Listening(shipped())
    again.restore(correlator.snapshot())
    again.last_words([said(0, 8, NOW + 2)])
    assert again.pulses() == [Pulse("ml", "pretrain", 2, 4, 8, 2.0)]


def test_a_stalled_job_shows_since_when(telemetry: Telemetry, clock: ManualClock):
    """Lines go on while the step stands still: the time of the last line moves, that of the last step does not."""
    telemetry.jobs_heard([Pulse("ml", "a", 2, 2, 7, 1.0)])
    clock.advance(300)
    telemetry.jobs_heard([Pulse("ml", "a", 2, 2, 7, 1.0)])
    found = samples(telemetry)
    assert found["firstfault_job_last_line_timestamp_seconds"]["a"] == NOW + 300
    assert found["firstfault_job_last_step_timestamp_seconds"]["a"] == NOW
    clock.advance(5)
    telemetry.jobs_heard([Pulse("ml", "a", 2, 2, 8, 1.0)])
    assert samples(telemetry)["firstfault_job_last_step_timestamp_seconds"]["a"] == NOW + 305


def test_what_is_unknown_has_no_series(telemetry: Telemetry):
    """No world size is not a world size of 0."""
    telemetry.jobs_heard([Pulse("ml", "a", 0)])
    found = samples(telemetry)
    assert found["firstfault_job_ranks_heard"] == {"a": 0}
    assert "firstfault_job_world_size" not in found
    assert "firstfault_job_last_step_timestamp_seconds" not in found


def test_a_job_that_is_silent_for_a_day_is_gone(telemetry: Telemetry, clock: ManualClock):
    """Series of jobs that are over do not stay for ever."""
    telemetry.jobs_heard([Pulse("ml", "a", 1)])
    clock.advance(IDLE_SECS)
    telemetry.jobs_heard([Pulse("ml", "b", 1)])
    found = samples(telemetry)
    assert (found["firstfault_job_ranks_heard"], found["firstfault_jobs"][""]) == ({"b": 1}, 1)


def test_a_flood_of_job_names_hits_the_cap_and_is_counted(telemetry: Telemetry):
    """A job that goes on speaking keeps its gauges through 100,000 names that come once; a scrape stays small."""
    for start in range(0, FLOOD, 150):
        telemetry.jobs_heard([Pulse("ml", "pretrain", 8, 8, start), *(Pulse("evil", f"a-{n}", 1) for n in range(start, start + 150))])
    found = samples(telemetry)
    assert len(found["firstfault_job_ranks_heard"]) == 200
    assert found["firstfault_job_ranks_heard"]["pretrain"] == 8
    assert found["firstfault_jobs_hidden_total"][""] > FLOOD - 200
    assert len(generate_latest(telemetry.registry)) < 300_000


def test_a_flood_of_failing_jobs_hides_no_incident_that_was_shown(telemetry: Telemetry):
    """100,000 jobs fail at once: the cap holds, the rest is counted, and the incident from before is still there."""
    before = incident("real", key=JobKey("ml", "zzz-real"))
    telemetry.incidents_open([before])
    flood = failing_flood()
    telemetry.incidents_open([*flood, before])
    found = samples(telemetry)
    assert len(found["firstfault_incident_open"]) == 200
    assert found["firstfault_incident_open"]["zzz-real"] == 1
    assert found["firstfault_incident_open_capped"][""] == FLOOD - 199
    telemetry.incidents_open(flood[:10])
    found = samples(telemetry)
    assert (len(found["firstfault_incident_open"]), found["firstfault_incident_open_capped"][""]) == (10, 0)


def test_scraping_stays_quick_with_all_names_taken(telemetry: Telemetry):
    """A scrape costs what is shown, not what was seen: after the flood it takes at most thrice as long as before it, on the same series."""
    telemetry.incidents_open(failing_flood()[:200])
    small = _fastest_scrape(telemetry)
    telemetry.incidents_open(failing_flood())
    assert _fastest_scrape(telemetry) < 3 * small


def _fastest_scrape(telemetry: Telemetry) -> float:
    spent = []
    for _ in range(5):
        began = time.perf_counter()
        generate_latest(telemetry.registry)
        spent.append(time.perf_counter() - began)
    return min(spent)
