"""A job's own rhythm decides how long it may be quiet: pauses that it has shown, or is likely to make, are no stalls."""

from __future__ import annotations

import json

import pytest

from firstfault.correlate.vitals.pace import Pace


def paced(steps: int, secs: float = 2.0, every: int = 1, pauses: dict[int, tuple[float, str]] | None = None) -> Pace:
    """Return the pace of a job that printed each so many steps; after some it paused, and said why or did not."""
    pace, pauses = Pace(), pauses or {}
    for step in range(every, steps, every):
        longer, phase = pauses.get(step, (0.0, ""))
        pace.moved(step + every, step, secs * every + longer, phase)
    return pace


@pytest.mark.parametrize(("secs", "every", "least", "most"), [(0.3, 1, 30, 30), (2.0, 1, 30, 30), (12.0, 1, 72, 72), (2.0, 10, 50, 50)])
def test_six_usual_steps_or_half_a_minute(secs, every, least, most):
    """An ordinary step that is followed by none counts after six steps, at least 30 s; lines of several steps get one line more."""
    limit = paced(1000, secs, every).limit(887 if every == 1 else 870, "")
    assert least <= limit <= most + 0.1


def test_early_steps_are_given_time():
    """During the first hundred steps compilers still work: longer ones between lines of several steps, shorter where a rank is behind."""
    assert (paced(60).limit(57, ""), paced(60).sure(57, ""), paced(60).sure_behind(57)) == (180, 300, 180)
    assert paced(60, 0.3, 5).sure(57, "") == 600
    assert paced(187).sure_behind(187) == 30


def test_the_first_steps_of_a_later_attempt_take_about_as_long():
    """The longest early gap of the attempt before says how long one may take now; an attempt that never got going teaches nothing."""
    pace = paced(300, pauses={7: (40.0, "")})
    pace.anew()
    for step in range(1, 30):
        pace.moved(step + 1, step, 2.0, "")
    assert pace.limit(29, "") == pace.sure(29, "") == pytest.approx(4 * 42 + 10)
    pace.anew()
    assert pace.early == 42


def test_a_first_pause_at_any_step_is_told_of_before_it_counts():
    """The longer a job has trained, the longer its first silent pause may take; or as long as those of another rhythm do."""
    young, old = paced(187), paced(1987)
    assert (young.limit(187, ""), young.sure(187, "")) == (30, 186)
    assert (old.limit(1987, ""), old.sure(1987, "")) == (30, 600)
    known = paced(1987, pauses=dict.fromkeys((337, 674, 1011), (400.0, "")))
    assert (known.limit(1987, ""), known.sure(1987, "")) == (30, pytest.approx(2 * 402 + 10))


def test_pauses_by_the_clock_are_known():
    """A silent checkpoint each half an hour comes at no step in particular."""
    pauses = {871: (60.0, ""), 1743: (60.0, ""), 2611: (60.0, "")}
    known = paced(3482, 2.0, 1, pauses)
    assert known.limit(3481, "") >= 2 * 62
    assert paced(3201, 2.0, 1, pauses).limit(3201, "") == 30


def test_a_phase_that_takes_no_time_is_waited_for_no_longer():
    """Words about data at each epoch, five times without a pause, excuse no silence."""
    told = paced(600, pauses=dict.fromkeys(range(107, 600, 90), (0.0, "data")))
    assert told.limit(587, "data") == 30
    assert paced(300, pauses={107: (0.0, "data")}).limit(287, "data") >= 1800


def test_the_end_of_an_epoch_is_a_phase():
    """After the last step of an epoch nobody knows how long its evaluation takes, until two have passed."""
    assert paced(300).limit(287, "full") >= 1800
    assert paced(1000, pauses=dict.fromkeys((187, 387), (40.0, "full"))).limit(787, "full") == pytest.approx(2 * 42 + 10)


def test_a_phase_is_given_its_usual_length():
    """The first checkpoint may take long; a later one about as long as the longest before."""
    assert paced(300).limit(287, "checkpoint") >= 1800
    known = paced(1000, pauses=dict.fromkeys((187, 387, 587), (40.0, "checkpoint")))
    assert known.limit(787, "checkpoint") == pytest.approx(2 * 42 + 10)
    assert known.limit(788, "") == 30


def test_a_silent_pause_that_comes_back_is_known():
    """An evaluation of which no line tells is known by its rhythm."""
    known = paced(2000, pauses=dict.fromkeys((337, 674, 1011), (300.0, "")))
    assert known.limit(1348, "") == pytest.approx(2 * 302 + 10)
    assert known.limit(1361, "") == 30


def test_a_round_step_is_given_time_until_it_proved_ordinary():
    """At step 1000 nobody can know whether the first evaluation has begun; when such steps passed three times, one can."""
    fresh = paced(480)
    assert fresh.limit(500, "") >= 900
    assert paced(480).limit(450, "") == 30  # multiples of 50 have passed often enough


def test_a_rare_pause_that_falls_on_a_frequent_one():
    """Silent checkpoints of a minute each 500 steps teach nothing of the first evaluation at step 5000, and do not make it forgotten."""
    often = dict.fromkeys(range(500, 60_000, 500), (60.0, ""))
    first = paced(4990, pauses=often)
    assert first.limit(4500, "") == pytest.approx(2 * 62 + 10, abs=3)
    assert first.limit(5000, "") >= 1500
    later = paced(24_990, pauses=often | dict.fromkeys(range(5000, 60_000, 5000), (800.0, "")))
    assert later.limit(25_000, "") >= 1600
    assert later.limit(24_500, "") < 200


def test_a_silent_pause_behind_a_told_one():
    """A line tells of the short checkpoint; the evaluation after it, at each 5000th step, is known by its length too."""
    told = dict.fromkeys(range(200, 60_000, 200), (8.0, "checkpoint")) | dict.fromkeys(range(5000, 60_000, 5000), (69.0, "checkpoint"))
    assert paced(34_990, pauses=told).limit(35_000, "checkpoint") >= 138
    assert paced(34_990, pauses=told).limit(34_800, "checkpoint") <= 60


def test_the_step_before_a_round_one_is_an_ordinary_one():
    """That step 14,999 passed says nothing of step 15,000."""
    known = paced(41_000)
    assert known.level(14_999) == 0
    assert known.level(15_000)
    assert known.passed[known.level(15_000)] == 3


def test_one_known_pause_says_little_of_the_next():
    """The second silent epoch end may take four times the first, the fourth only twice the longest."""
    ends = dict.fromkeys(range(1200, 12_000, 1200), (44.0, ""))
    assert paced(2400, pauses=ends).limit(2400, "") >= 4 * 46
    assert paced(4800, pauses=ends).limit(4800, "") <= 2 * 46 + 10


def test_round_steps_between_sparse_lines():
    """With a line each 50 steps the first silent epoch may end at step 1200, once 100 and 200 have passed with fewer digits."""
    assert paced(1200, 2.0, 50).limit(1200, "") >= 1500


def test_pauses_of_uneven_length():
    """The longest of the last sixteen counts: the tail of one pause is no stall because the last few were short."""
    lengths = [60.0, 130.0, *[50.0] * 10]
    known = paced(1200 * 13, pauses={1200 * (n + 1): (secs, "") for n, secs in enumerate(lengths)})
    assert known.limit(1200 * 13, "") >= 2 * 130


def test_lines_that_were_not_looked_at_are_no_pause():
    """A glance shows the last lines only: a jump over a hundred steps teaches the usual time, not a pause."""
    pace = paced(300)
    pace.moved(400, 300, 200.0, "")
    assert not pace.pauses
    assert pace.line_secs == 2.0


def test_what_was_learnt_survives_a_restart():
    """The state is plain JSON and says the same afterwards."""
    known = paced(2000, pauses={337: (300.0, ""), 674: (300.0, ""), 500: (40.0, "checkpoint")})
    again = Pace()
    again.load(json.loads(json.dumps(known.state())))
    for step in (1011, 1000, 1003):
        for phase in ("", "checkpoint"):
            assert (again.limit(step, phase), again.sure(step, phase)) == (known.limit(step, phase), known.sure(step, phase))
