"""Equal events are folded for one speaker of one job, never across jobs that share a stream."""

from __future__ import annotations

from dataclasses import replace

from firstfault.detect.folding import FREE, Folds, Repeats
from firstfault.model import Event, JobKey, Stamp, Who


def _event(job: str, offset: int) -> Event:
    who, time = Who(rank=0), Stamp(1000.0 + offset, "line", 0.1, True)
    return Event(f"s@{offset}/x/y", "x", "y", "initiating", JobKey(job=job), who, time, "s", offset)


def test_equal_events_of_different_jobs_all_pass():
    """One collector file carries many jobs: each job's fault is its own."""
    folds = Folds()
    passed = [one for number in range(3 * FREE) for one in folds.add(_event(f"job-{number}", number))]
    assert {one.job.job for one in passed} == {f"job-{number}" for number in range(3 * FREE)}


def test_equal_events_of_one_speaker_are_folded():
    """A storm of one line is counted."""
    folds = Folds()
    passed = [one for number in range(50) for one in folds.add(_event("job", number))]
    assert len({one.id for one in passed}) == FREE


def test_equal_facts_of_different_jobs_all_pass():
    """What one job's rank says is news even if another job's rank said the same."""
    repeats = Repeats()
    job = JobKey(job="a")
    assert repeats.passes(job, "start", Who(rank=0), {"rank": 0}, "first")
    assert not repeats.passes(job, "start", Who(rank=0), {"rank": 0}, "first")
    assert repeats.passes(replace(job, job="b"), "start", Who(rank=0), {"rank": 0}, "first")
