"""A new attempt is compared with the loss of earlier ones at the same steps, in memory, over restarts, and in saved logs."""

from __future__ import annotations

import json
import random

import pytest

from firstfault.correlate.incident import Correlator
from firstfault.correlate.vitals.curves import ABOVE, MOST_ATTEMPTS, MOST_BLOCKS, Curves
from firstfault.correlate.vitals.series import Series
from firstfault.model import JobKey
from firstfault.rules.load import load
from tests.correlate.build import fact, progress
from tests.correlate.test_clues import r

START_OF_BUILD = 1_800_000_000.0  # of tests.correlate.build


@pytest.fixture(scope="module")
def rules():
    return load()


def curve(first: int, last: int, factor: float = 1.0, flat: bool = False, seed: int = 3) -> Series:
    """Return the loss of an attempt; a flat one stays where it began."""
    dice = random.Random(seed)
    return Series([(n, factor * (2 + 6 * 0.999 ** (first if flat else n)) * (1 + dice.gauss(0, 0.02))) for n in range(first, last)])


def kept(*attempts: Series) -> Curves:
    curves = Curves()
    for one in attempts:
        curves.keep(one)
    return curves


def test_a_start_that_wavers_above_all_earlier_ones_is_told():
    """Resumed at step 400 without its optimizer, the loss is a fifth too high and stays."""
    told = kept(curve(0, 800)).above(curve(400, 480, 1.2, flat=True))
    assert told is not None
    assert (told.fingerprint, told.since) == (ABOVE, 400)


@pytest.mark.parametrize(
    "attempt",
    [
        curve(400, 480),  # as before
        curve(400, 480, 1.05, flat=True),  # hardly above
        curve(0, 300, 1.3),  # above, but falling
        curve(900, 1000, 1.5, flat=True),  # at steps that no attempt made
        curve(400, 430, 1.5, flat=True),  # too young
    ],
)
def test_other_starts_are_well(attempt):
    """Nothing is told of an attempt that does as before, learns from another start, or cannot be compared."""
    assert kept(curve(0, 800, seed=9)).above(attempt) is None


def test_one_earlier_attempt_that_was_as_high_is_enough():
    """It must lie above every earlier attempt."""
    assert kept(curve(0, 800), curve(0, 800, 1.25)).above(curve(400, 480, 1.2, flat=True)) is None


def test_little_room_however_many_and_long():
    """The newest attempts are kept, in so many blocks each; the state is plain JSON, and known attempts are not kept twice."""
    curves = kept(*(curve(0, 5000, seed=seed) for seed in range(12)))
    assert len(curves.attempts) == MOST_ATTEMPTS
    assert all(len(one) <= MOST_BLOCKS for one in curves.attempts)
    saved = json.loads(json.dumps(curves.state()))
    curves.load(saved)
    assert curves.state() == saved


def words(correlator: Correlator, now: float, steps: range, factor: float, flat: bool = False) -> list:
    """Let rank 0 of a job make steps 2 s apart, seen in summaries; return what changed."""
    dice, changes = random.Random(4), []
    values = [factor * (2 + 6 * 0.999 ** (steps[0] if flat else n)) * (1 + dice.gauss(0, 0.02)) for n in steps]
    for end in range(16, len(steps) + 1, 16):
        shown = [(float(n), now - START_OF_BUILD + 2.0 * (n - steps[0])) for n in steps[end - 16 : end]]
        one = progress(r(0), shown, "r0", JobKey(job="curves"))
        at = START_OF_BUILD + shown[-1][1] + 1
        seen = type(one)(**{**{name: getattr(one, name) for name in one.__slots__}, "losses": tuple(values[end - 16 : end])})
        correlator.last_words([seen], at)
        changes += correlator.advance(at)
    return changes


def restarted(correlator: Correlator, now: float) -> None:
    correlator.observe([fact("restart", r(0), now - START_OF_BUILD, "r0", JobKey(job="curves"), count=1)], now)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_running_job_is_compared_with_its_attempt_before(rules, stopped):
    """After a restart line the steps go back; the new loss stays a third above. The curve survives a restart of ours."""
    correlator = Correlator(rules)
    assert words(correlator, START_OF_BUILD, range(1, 801), 1.0) == []
    restarted(correlator, START_OF_BUILD + 1700)
    if stopped:
        saved = json.loads(json.dumps(correlator.snapshot()))
        correlator = Correlator(rules)
        correlator.restore(saved)
    changes = words(correlator, START_OF_BUILD + 1800, range(401, 641), 1.35, flat=True)
    assert [(one.kind, one.incident.fingerprint) for one in changes if one.kind == "opened"] == [("opened", ABOVE)]


def test_a_family_shares_its_curves(rules):
    """Jobs whose names make one family are compared with each other, others are not."""
    for family, told in ((lambda _: "all", True), (str, False)):
        correlator = Correlator(rules)
        correlator.family = family
        correlator._curves["", "unused"] = Curves()
        run = correlator._run(JobKey(job="curves-0"))
        run.watch.curves.keep(curve(1, 801))
        assert bool([one for one in words(correlator, START_OF_BUILD, range(401, 641), 1.35, flat=True) if one.kind == "opened"]) is told


def test_an_epoch_that_counts_from_one_again_is_no_attempt(rules):
    """Steps that go back without a start are a new epoch."""
    correlator = Correlator(rules)
    words(correlator, START_OF_BUILD, range(1, 321), 1.0)
    assert words(correlator, START_OF_BUILD + 700, range(1, 321), 1.5) == []
