"""Judge the numbers of a job with robust statistics: medians and their deviations, over long stretches, so that noise never counts.

Each test says what it compares; how often it errs on healthy jobs is measured by `python -m bench.simulator` and told in docs/steps.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from firstfault.correlate.clocks import deviation, median
from firstfault.correlate.vitals.drift import Drift
from firstfault.correlate.vitals.series import WINDOW, Series
from firstfault.rules.catalogue import RuleSet

DIVERGING = "loss-diverging"
SPIKE = "loss-spike"
DRIFTING = "loss-drifting"
PLATEAU = "loss-plateau"
OVERFLOW = "grad-overflow-persistent"
EXPLODING = "gradient-exploding"
SLOWER = "throughput-drop"
CREEP = "memory-creep"

LASTING_KINDS = ("spike", "drop", "plateau")  # of `numeric` conditions, that this file judges; nan and inf are patterns
_FEWEST = 3 * WINDOW
_LASTING = 30  # lines that must be off, but for one in ten: two spikes of single batches that follow each other are over by then
_RISE, _RISE_DEVIATIONS = 0.25, 8.0  # above the best window, of its median and of its own deviation
_FALL = 0.1  # of the usual value, below which it fell to nothing
_PLATEAU_POINTS, _PLATEAU_STEPS, _PLATEAU_GAIN, _FROM_START, _PLATEAU_FIRST = 200, 1000.0, 0.02, 0.05, 20
_SCALE_POINTS, _SCALE_HIGH, _SCALE_LOW = 10, 256.0, 1.0
_NORM_POINTS, _NORM_TIMES, _NORM_DEVIATIONS = 8, 10.0, 12.0
_SLOW_POINTS, _SLOW_FEWEST, _SLOW_TIMES, _SLOW_SECS = 40, 120, 1.4, 600.0
_CREEP_POINTS, _CREEP_PARTS, _CREEP_PART, _CREEP_ALL = 64, 8, 0.01, 0.2
_DRIFT_BLOCK_SECS = 60.0  # of step times: a slow minute is one block, however many steps it has


@dataclass(frozen=True, slots=True)
class Trouble:
    """A number that went wrong and stays so."""

    fingerprint: str
    since: float  # step
    text: str
    at: float | None = None  # when a watch told of it first; None: read from logs that are over


@dataclass(frozen=True, slots=True)
class Asked:
    """What an entry asks of a number of step lines."""

    fingerprint: str
    name: str
    kind: str  # spike, drop or plateau


def asked_of(rules: RuleSet) -> tuple[Asked, ...]:
    """Return what entries ask of numbers, beyond what is always judged."""
    symptoms = (symptom for symptom in rules.symptoms if symptom.numeric and symptom.numeric.kind in LASTING_KINDS)
    found = (Asked(one.fingerprint, one.numeric.name, one.numeric.kind) for one in symptoms if one.numeric)
    return tuple(sorted(set(found) - _ALWAYS, key=lambda one: (one.fingerprint, one.name, one.kind)))


def series_of(name: str, points: Iterable[tuple[float, float]] = ()) -> Series:
    """Return a series of a number; of those whose slow rise is told, with the sum that tells it."""
    least = {"loss": 0.0, "step_secs": _DRIFT_BLOCK_SECS}.get(name)
    return Series(tuple(points), Drift(least) if least is not None else None)


def troubles(told: Mapping[str, Series], asked: Iterable[Asked] = ()) -> list[Trouble]:
    """Return what is wrong with the series of one job: "loss", "grad_norm", "loss_scale", "step_secs", "memory", and what entries ask."""
    found = [one for name, test in _TESTS if name in told and (one := test(told[name])) is not None]
    found += [one for ask in asked if ask.name in told and (one := _asked(ask, told[ask.name])) is not None]
    if any(one.fingerprint in (DIVERGING, SPIKE) for one in found):
        found = [one for one in found if one.fingerprint != DRIFTING]
    if (drift := _drifting_steps(told)) is not None and not any(one.fingerprint == SLOWER for one in found):
        found.append(drift)
    return list({one.fingerprint: one for one in reversed(found)}.values())[::-1]


def _newest(one: Series, count: int) -> list[float]:
    """Return so many of the newest finite values."""
    found = [value for _, value in one.points[-2 * count :] if math.isfinite(value)]
    return found[-count:]


def _risen(one: Series) -> tuple[float, float, list[float]] | None:
    """Return base, bound and the last lines where nine in ten of them lie above the best earlier window by far more than its own noise."""
    if len(one) < _FEWEST or one.best is None:
        return None
    base, spread = one.best
    bound = base + max(_RISE * abs(base), _RISE_DEVIATIONS * spread)
    recent = _newest(one, _LASTING)
    if base <= 0 or len(recent) < _LASTING or sorted(recent)[_LASTING // 10] <= bound:
        return None
    return base, bound, recent


def _begun(points: Sequence[tuple[float, float]], usual: Callable[[float], bool]) -> float:
    """Return the step of the first of the newest points none of which has a usual value."""
    count = next((count for count, (_, value) in enumerate(reversed(points)) if usual(value)), len(points))
    return points[-count][0] if count else points[-1][0]


def _rising(one: Series) -> Trouble | None:
    """The last lines lie above the best earlier one: climbing still, or not."""
    risen = _risen(one)
    if risen is None:
        return None
    base, bound, recent = risen
    early, late = median(recent[: _LASTING // 2]), median(recent[_LASTING // 2 :])
    climbing = late - early > 2 * (one.best or risen)[1] or late > 2 * base
    what = "climbs" if climbing else "jumped and stays up"
    step = _begun(one.points, lambda value: value <= bound)
    return Trouble(DIVERGING if climbing else SPIKE, step, f"since step {step:g} the loss {what}: {late:.4g}, its best was {base:.4g}")


def _drifting(one: Series) -> Trouble | None:
    """Block by block the loss lies a little above its best level, for longer than chance brings."""
    drift = one.drift
    if drift is None or not drift.tells or drift.best is None:
        return None
    text = f"since step {drift.since:g} the loss drifts up: {drift.newest:.4g}, its best level was {drift.best:.4g}"
    return Trouble(DRIFTING, drift.since, text)


def _drifting_steps(told: Mapping[str, Series]) -> Trouble | None:
    """The same of the time that a step takes."""
    one = told.get("step_secs")
    drift = one.drift if one is not None else None
    if drift is None or not drift.tells or drift.best is None:
        return None
    more = 100 * (drift.newest / drift.best - 1)
    text = f"steps take {more:.0f} % longer for good since about step {drift.since:g}: {drift.newest:.3g} s, they took {drift.best:.3g} s"
    return Trouble(SLOWER, drift.since, text)


def _flat(one: Series) -> Trouble | None:
    """From the very start on nothing is learnt: the second half lies where the first steps lay."""
    found = _unchanged(one)
    return Trouble(PLATEAU, found[0], f"after {found[1]:.0f} steps the loss is where it began: {found[2]:.4g}") if found else None


def _unchanged(one: Series) -> tuple[float, float, float] | None:
    """Return the first step, how many followed, and the value, where a series is after many steps what it was."""
    points = one.points
    if len(points) < _PLATEAU_POINTS or points[-1][0] - points[0][0] < _PLATEAU_STEPS or points[0][0] > _FROM_START * points[-1][0]:
        return None
    begin, end = points[0][0], points[-1][0]
    first = [value for _, value in points[: max(_PLATEAU_FIRST, bisect_right(points, (begin + _FROM_START * (end - begin), math.inf)))]]
    last = [value for _, value in points[bisect_left(points, (begin + (end - begin) / 2, -math.inf)) :]]
    before, after = median(first), median(last)
    flat = before > 0 and all(map(math.isfinite, (before, after))) and abs(before - after) < _PLATEAU_GAIN * before
    return (begin, end - begin, after) if flat else None


def _collapsed(one: Series) -> Trouble | None:
    """The loss scale fell to the bottom and stays there: every step overflows."""
    points = one.points
    recent = [value for _, value in points[-_SCALE_POINTS:]]
    if len(points) < 2 * _SCALE_POINTS or max(recent) > _SCALE_LOW or (most := max(one.values)) < _SCALE_HIGH:
        return None
    first = _begun(points, lambda value: value > _SCALE_LOW)
    return Trouble(OVERFLOW, first, f"since step {first:g} the loss scale stays at {recent[-1]:g}, it was {most:g}")


def _exploding(one: Series) -> Trouble | None:
    """All last gradient norms are many times those of the calmest time."""
    if len(one) < _FEWEST or one.best is None or one.best[0] <= 0:
        return None
    (base, spread), recent = one.best, _newest(one, _NORM_POINTS)
    if len(recent) < _NORM_POINTS or min(recent) <= max(_NORM_TIMES * base, base + _NORM_DEVIATIONS * spread):
        return None
    step = one.points[-_NORM_POINTS][0]
    return Trouble(EXPLODING, step, f"since step {step:g} the gradient norm is about {median(recent):.3g}, usual is {base:.3g}")


def _slower(one: Series) -> Trouble | None:
    """Three quarters of the last steps take much longer than the usual step, for ten minutes at least."""
    points = one.points
    count = _lasting(points) if len(points) >= _SLOW_FEWEST else 0
    if not count:
        return None
    recent = [value for _, value in points[-count:]]
    quarter = sorted(recent)[count // 4]
    if one.best is not None and quarter <= _SLOW_TIMES * one.best[0]:  # the usual step takes no less than the best
        return None
    earlier = [value for _, value in points[:-count]]
    base = median(earlier)
    if base <= 0 or quarter <= max(_SLOW_TIMES * base, base + 5 * deviation(earlier)):
        return None
    step = points[-count][0]
    return Trouble(SLOWER, step, f"a step takes {median(recent):.3g} s, it took {base:.3g} s before step {step:g}")


def _lasting(points: Sequence[tuple[float, float]]) -> int:
    """Return how many of the last points cover ten minutes, at least a window; 0 where that is more than half of all."""
    step, secs = points[-1]
    if secs <= 0:
        return 0
    count = max(_SLOW_POINTS, len(points) - bisect_right(points, (step - _SLOW_SECS / secs, math.inf)) + 1)
    return count if count < len(points) // 2 else 0


def _creeping(one: Series) -> Trouble | None:
    """Memory grows from part to part without ever levelling off, and by much in all."""
    settled = one.points[len(one) // 10 :]
    if len(settled) < _CREEP_POINTS:
        return None
    size = len(settled) // _CREEP_PARTS
    first, last = (median([value for _, value in settled[at * size : (at + 1) * size]]) for at in (0, _CREEP_PARTS - 1))
    if first <= 0 or last <= (1 + _CREEP_ALL) * first:
        return None
    parts = [median([value for _, value in settled[at * size : (at + 1) * size]]) for at in range(_CREEP_PARTS)]
    if min(after - before for before, after in pairwise(parts)) <= _CREEP_PART * first:
        return None
    text = f"allocated memory grew from {first:.3g} to {last:.3g} GB since step {settled[0][0]:g} and never levels off"
    return Trouble(CREEP, settled[0][0], text)


def _asked(ask: Asked, one: Series) -> Trouble | None:
    return _KINDS[ask.kind](ask, one)


def _spiked(ask: Asked, one: Series) -> Trouble | None:
    """What `_rising` asks of the loss, of any number."""
    risen = _risen(one)
    if risen is None:
        return None
    base, bound, recent = risen
    step = _begun(one.points, lambda value: value <= bound)
    return Trouble(ask.fingerprint, step, f"since step {step:g} {ask.name} is about {median(recent):.4g}, its lowest level was {base:.4g}")


def _dropped(ask: Asked, one: Series) -> Trouble | None:
    """Nine in ten of the last window lie below a tenth of the usual value, by far more than its own noise."""
    values = [value for _, value in one.points if math.isfinite(value)]
    if len(values) < _FEWEST:
        return None
    usual, recent = values[:-WINDOW], values[-WINDOW:]
    base = median(usual)
    bound = base - max((1 - _FALL) * abs(base), _RISE_DEVIATIONS * deviation(usual))
    if base <= 0 or sorted(recent)[-WINDOW // 10 - 1] >= bound:
        return None
    step = one.points[-WINDOW][0]
    return Trouble(ask.fingerprint, step, f"since step {step:g} {ask.name} is about {median(recent):.4g}, usual is {base:.4g}")


def _stuck(ask: Asked, one: Series) -> Trouble | None:
    found = _unchanged(one)
    if found is None:
        return None
    return Trouble(ask.fingerprint, found[0], f"after {found[1]:.0f} steps {ask.name} is where it began: {found[2]:.4g}")


_KINDS = {"spike": _spiked, "drop": _dropped, "plateau": _stuck}
_TESTS = (
    ("loss", _rising),
    ("loss", _drifting),
    ("loss", _flat),
    ("loss_scale", _collapsed),
    ("grad_norm", _exploding),
    ("step_secs", _slower),
    ("memory", _creeping),
)
_ALWAYS = {Asked(SPIKE, "loss", "spike"), Asked(DIVERGING, "loss", "spike"), Asked(PLATEAU, "loss", "plateau")}
