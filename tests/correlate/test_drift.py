"""A slow, lasting rise is told by a cumulative sum where windows see nothing; noise alone is not, for as long as is stated."""

from __future__ import annotations

import json
import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.correlate.vitals import drift
from firstfault.correlate.vitals.drift import run_length
from firstfault.correlate.vitals.numbers import series_of, troubles
from firstfault.correlate.vitals.recent import Recent
from firstfault.correlate.vitals.series import MOST, WINDOW, Series


def losses(points: int, noise: float, rise: float = 0.0, since: int = 0, over: int = 1) -> list[tuple[float, float]]:
    """Return a loss that settles at 2; from `since` on it rises by a share, slowly over so many points."""
    dice = random.Random(5)
    return [
        (n, (2.0 + 5.0 * 0.98**n) * (1 + rise * min(1.0, max(0, n - since) / over)) * (1 + dice.gauss(0, noise))) for n in range(points)
    ]


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.06])
def test_a_tenth_that_comes_slowly_is_told_and_windows_miss_it(noise):
    """The loss rises by an eighth over a thousand lines: no window is a quarter above the best, and the sum tells."""
    told = troubles({"loss": series_of("loss", losses(4000, noise, 0.125, 2000, 1000))})
    assert [one.fingerprint for one in told] == ["loss-drifting"]
    assert 1900 <= told[0].since <= 3600
    assert troubles({"loss": Series(losses(4000, noise, 0.125, 2000, 1000))}) == []


@pytest.mark.parametrize("noise", [0.005, 0.06, 0.3])
def test_noise_and_learning_are_no_drift(noise):
    """However noisy, a loss that falls and then stays is well."""
    assert not series_of("loss", losses(20_000, noise)).drift.tells


def test_steps_that_take_a_tenth_longer_for_good():
    """Told after some minutes, as a drop of throughput; gone once the steps are as fast as before."""
    dice = random.Random(2)
    one = series_of("step_secs")
    for n in range(2400):
        secs = 2.0 * (1.1 if 1200 <= n < 1900 else 1.0) * dice.lognormvariate(0, 0.03)
        one.add(n, secs, secs)
        if n in (1199, 1300, 1899, 2399):
            told = [found.fingerprint for found in troubles({"step_secs": one})]
            assert told == (["throughput-drop"] if n == 1899 else []), n


def test_short_steps_are_summed_by_the_minute():
    """A slow minute of a job with three steps a second is one block and no drift."""
    one = series_of("step_secs")
    for n in range(6000):
        secs = 0.3 * (1.3 if 4000 <= n < 4200 else 1.0)
        one.add(n, secs, secs)
    assert one.drift.blocks < 6000 * 0.3 / 55
    assert not one.drift.tells


def test_the_stated_run_length_is_that_of_noise():
    """Siegmund's formula agrees with sums of random numbers, and promises centuries at the bounds that are used."""
    dice, runs = random.Random(1), []
    for _ in range(150):
        total, count = 0.0, 0
        while total <= 4.0:
            total = max(0.0, total + dice.gauss(0, 1) - 0.5)
            count += 1
        runs.append(count)
    assert sum(runs) / len(runs) == pytest.approx(run_length(0.5, 4.0), rel=0.35)
    minutes = run_length(drift.ALLOWED_DEVIATIONS, drift.BOUND_DEVIATIONS)
    assert minutes / (60 * 24 * 365) > 80


def test_a_drift_survives_a_restart():
    """Taken up from JSON in the middle of a block, it says the same as one that was never stopped."""
    points = losses(4000, 0.02, 0.125, 2000, 1000)
    whole, before = series_of("loss", points), series_of("loss", points[:2713])
    again = series_of("loss")
    again.load(json.loads(json.dumps(before.state())))
    for step, value in points[2713:]:
        again.add(step, value)
    assert again.drift.state() == whole.drift.state()
    assert (again.best, again.points) == (whole.best, whole.points)


def test_the_state_of_an_earlier_version_is_taken():
    """Before, a series was saved as its points alone."""
    old = series_of("loss")
    old.load([[1.0, 3.0], [2.0, 2.9]])
    assert old.points == [(1.0, 3.0), (2.0, 2.9)]


def test_the_best_window_is_that_of_all_points_seen():
    """What is kept on the way is what a search over all windows finds."""
    points = losses(MOST - 1, 0.05)
    values = [value for _, value in points]
    windows = [values[at : at + WINDOW] for at in range(0, len(values) - 2 * WINDOW + 1, WINDOW // 2)]
    assert Series(points).best[0] == min(median(window) for window in windows)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200), st.integers(1, 40))
def test_the_newest_numbers_have_their_median(numbers, most):
    """Whatever comes and goes, middle and largest are those of the last ones."""
    kept = Recent(most, numbers)
    assert list(kept) == numbers[-most:]
    assert kept.median == pytest.approx(median(numbers[-most:]))
    assert kept.largest == max(numbers[-most:])
