"""How far a job has come: each moment once, whoever tells of it, however often."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import Fact, JobKey, Line, Progress, Stamp, Who
from firstfault.topology.mileage import Course, Mileage
from firstfault.topology.spans import clean_words, duration, read_span

AT = 1_800_000_000.0
KEY = JobKey("team", "train-7b", "run1")


def progress(rank: int, *steps: tuple[float, float], key: JobKey = KEY, said: str = "") -> Progress:
    """Return what a rank was seen doing: steps with the seconds after AT."""
    points = tuple((step, AT + after) for step, after in steps)
    stamp = Stamp(points[-1][1], "line")
    return Progress(
        f"s{rank}@{steps[-1]}", key, Who(rank=rank), f"s{rank}", stamp, stamp, 1, Line("a", 1, said), points[-1][0], stamp, points
    )


def fact(name: str, after: float, **values: Any) -> Fact:
    return Fact(f"f@{name}{after}", name, KEY, Who(rank=0), Stamp(AT + after, "line"), "s0", 0, values)


def drive(course: Course, *observations: Any) -> Mileage:
    total = Mileage()
    for one in observations:
        new = course.hear(one)
        if new:
            total.add(new)
    return total


def test_all_ranks_tell_of_the_same_steps() -> None:
    """Eight ranks at step 100 have made 90 steps together, not 720, in whatever order their files are read."""
    course = Course(AT)
    told = [progress(rank, (10, 10), (50, 50), (100, 100)) for rank in range(8)]
    total = drive(course, *told)
    assert (total.steps, total.jobs) == (90, 1)


def test_a_stretch_is_counted_by_whoever_tells_of_it_first() -> None:
    """A rank that is read later and goes further adds only what is new."""
    course = Course(AT)
    total = drive(course, progress(0, (0, 1), (50, 51)), progress(1, (0, 1), (100, 101)), progress(0, (80, 81), (110, 111)))
    assert total.steps == pytest.approx(110)


def test_what_was_before_does_not_count() -> None:
    """Steps from before the fix was declared are no proof."""
    course = Course(AT + 55)
    assert drive(course, progress(0, (0, 1), (49, 50), (60, 61), (70, 71))).steps == 10


def test_a_restart_from_a_checkpoint_loses_no_more_than_its_first_stretch() -> None:
    """The step falls back; what follows counts again, and the way back does not."""
    course = Course(AT)
    total = drive(course, progress(0, (0, 1), (100, 101)), progress(0, (60, 200), (90, 230)))
    assert total.steps == 130


def test_running_time_leaves_out_silence() -> None:
    """A job that is silent for an hour did not run as far as anybody knows."""
    course = Course(AT)
    total = drive(
        course, progress(0, (0, 1)), progress(0, (1, 601)), progress(0, (2, 5000)), progress(1, (2, 5001)), progress(0, (3, 5300))
    )
    assert total.secs == pytest.approx(900)


def test_a_start_counts_once_a_step_follows() -> None:
    """All ranks print their start; a launch that dies before its first step is no proof that launching works."""
    course = Course(AT)
    starts = [fact("start", 10 + rank / 10) for rank in range(8)]
    assert drive(course, *starts).starts == 0
    steps = [progress(rank, (0, 20), (9, 29)) for rank in range(8)]
    assert drive(course, *steps).starts == 1
    assert drive(course, *[fact("start", 100), fact("start", 200), progress(0, (0, 210), (5, 215))]).starts == 1
    assert drive(course, progress(3, (12, 240))).starts == 0


def test_an_attempt_that_paths_number_is_a_start() -> None:
    """torchrun's attempt_N folders tell without a line; files of the old attempt that are read on are none."""
    course = Course(AT)
    one, two = JobKey("team", "train-7b", "run1", 0), JobKey("team", "train-7b", "run1", 1)
    told = [
        progress(0, (0, 1), (9, 10), key=one),
        progress(0, (0, 100), key=two),
        progress(1, (8, 101), key=one),
        progress(1, (1, 102), key=two),
    ]
    assert drive(course, *told).starts == 1


def test_checkpoints_count_once_for_all_ranks() -> None:
    """Every rank says that it has saved."""
    course = Course(AT)
    saves = [fact("checkpoint", 100 * number + rank, what="save-done") for number in range(3) for rank in range(8)]
    total = drive(course, *saves, fact("checkpoint", 1000, what="load-done"), fact("checkpoint", 1001, what="save-start"))
    assert (total.saves, total.loads) == (3, 1)


def test_epochs_are_read_from_the_last_words() -> None:
    """An epoch counts where the job prints it."""
    course = Course(AT)
    total = drive(course, progress(0, (1, 1), said="epoch 1 step 1/9 loss 2.5"), progress(0, (9, 9), said="epoch 3 step 9/9 loss 2.5"))
    assert total.epochs == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000), st.integers(1, 1000)), max_size=40), st.integers(0, 40))
def test_a_restart_of_ours_counts_nothing_twice(points: list[tuple[int, int, int]], cut: int) -> None:
    """A course that was saved and built anew goes on as if nothing had been."""
    told = [progress(rank, (step, after)) for rank, step, after in points]
    whole = Course(AT)
    expected = drive(whole, *told)
    first = Course(AT)
    total = drive(first, *told[:cut])
    second = Course.restored(json.loads(json.dumps(first.snapshot())), frozenset())
    total.add(drive(second, *told[cut:]))
    assert asdict(total) == pytest.approx(asdict(expected))  # sums of the same numbers, in another order
    assert second.snapshot() == whole.snapshot()
    assert expected.steps <= 1000 * len(points)


@pytest.mark.parametrize(
    ("span", "mileage", "over", "words"),
    [
        ("2000 steps", Mileage(steps=1200.4), False, "1200 of 2000 steps"),
        ("2000 steps", Mileage(steps=2500), True, "2000 of 2000 steps"),
        ("24h", Mileage(secs=3600 * 3.5), False, "3.5 of 24 hours of running"),
        ("24h", Mileage(secs=90_000), True, "24.0 of 24 hours of running"),
        ("20 starts", Mileage(starts=20), True, "20 of 20 starts"),
        ("1 epochs", Mileage(epochs=0.5), False, "0.5 of 1 epochs"),
        ("3 jobs", Mileage(jobs=3), True, "3 of 3 jobs"),
        ("10 requests", Mileage(steps=10**9), False, "requests are not counted"),
        ("", Mileage(), False, " are not counted"),
    ],
)
def test_what_an_entry_asks_for_is_measured(span: str, mileage: Mileage, over: bool, words: str) -> None:
    """Every unit that entries use is counted, or said not to be."""
    asked = read_span(span)
    assert (asked.over(mileage), asked.words(mileage)) == (over, words)


def test_every_shipped_entry_asks_for_something_that_is_counted() -> None:
    """No shipped fix can be declared whose proof never comes."""
    from tests.app.make import shipped

    assert [name for name, entry in shipped().entries.items() if not read_span(entry.verify.absent_for).countable] == []


def test_durations_are_told_by_two_units() -> None:
    """Short and exact enough to read at night."""
    assert [duration(secs) for secs in (0, 59, 60, 3_661, 90_000, 86_400, 86_460)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h 1 min",
        "1 d 1 h",
        "1 d",
        "1 d",
    ]
    assert clean_words(Mileage(secs=7200, steps=1234.5)) == "2 h of running, 1234 steps"
    assert clean_words(Mileage()) == ""
