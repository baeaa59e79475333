"""The healthy month draws in arrays what the simulator draws step by step, notes each job as it ends, and misses no false alarm."""

from __future__ import annotations

import json
from itertools import pairwise
from statistics import mean, median

import pytest

from bench.vitals import jobs, month

LIKE = {"loss": 0.1, "memory": 0.05, "grad_norm": 0.4, "loss_scale": 1.0}  # how alike the middles of two draws are


def drawn(seed: int) -> tuple[list[jobs.Step], month.Lines]:
    """Return the lines of one job, drawn both ways."""
    slow = list(jobs.run(jobs.draw(seed, 3.0), month.START))
    (fast,) = month.lines(jobs.draw(seed, 3.0))
    return slow, fast


@pytest.mark.parametrize("seed", [3, 8, 21, 34])
def test_both_ways_draw_the_same_job(seed):
    """The same lines, the same pauses with the same words at the same steps, the same pace, and numbers of the same level and noise."""
    slow, fast = drawn(seed)
    assert fast.numbers == [one.number for one in slow]
    assert {place: words for place, (words, _) in fast.told.items()} == {place: one.told for place, one in enumerate(slow) if one.told}
    paces = [median(after - before for before, after in pairwise(times)) for times in ([one.at for one in slow], fast.at)]
    assert paces[0] == pytest.approx(paces[1], rel=0.05)
    assert fast.at[-1] - fast.at[0] == pytest.approx(slow[-1].at - slow[0].at, rel=0.15)
    for name, values in fast.values.items():
        half = len(values) // 2
        assert median(values[half:]) == pytest.approx(median(one.values[name] for one in slow[half:]), rel=LIKE[name]), name
    assert set(fast.values) == set(slow[-1].values)


def test_a_stall_in_a_healthy_job_would_be_counted(monkeypatch):
    """The watch is not blind: a job that stands still for an hour at an ordinary step is told of, and so is a loss that stays up."""
    real = month.lines

    def spoilt(job):
        for some in real(job):
            at = some.numbers.index(next(n for n in some.numbers if n > 400 and n % 50 not in (0, 49)))
            some.at[at + 1 :] = [one + 3600.0 for one in some.at[at + 1 :]]
            some.values["loss"][-400:] = [3 * one for one in some.values["loss"][-400:]]
            yield some

    seed = next(seed for seed in range(100) if (job := jobs.draw(seed)).log_every == 1 and job.step_secs == 2.0)
    assert month.watched(jobs.draw(seed, 3.0)) == ([], 0)
    monkeypatch.setattr(month, "lines", spoilt)
    told = {one.fingerprint for one in month.watched(jobs.draw(seed, 3.0))[0]}
    assert "training-stalled" in told
    assert told & {"loss-spike", "loss-diverging"}


def test_what_was_watched_is_not_watched_again(tmp_path, monkeypatch):
    """Each job is a line of the log; a second run takes it from there."""
    monkeypatch.setattr(jobs.settings, "JOB_HOURS", (1.0,))
    log = tmp_path / "month.jsonl"
    first = month.run(5, 4, 0.02, log)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(rows) == first[2]
    assert mean(one["hours"] for one in rows) == pytest.approx(1.0, rel=0.1)
    monkeypatch.setattr(month, "watched", None)
    assert month.run(5, 4, 0.02, log) == first
