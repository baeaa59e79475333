"""Judge the numbers of a job with robust statistics: medians and their deviations, over long stretches, so that noise never counts.

Each test says what it compares; how often it errs on healthy jobs is measured by `python -m bench.simulator` and told in docs/steps.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from firstfault.correlate.clocks import median
from firstfault.correlate.vitals.series import Series

DIVERGING = "loss-diverging"
SPIKE = "loss-spike"
PLATEAU = "loss-plateau"
OVERFLOW = "grad-overflow-persistent"
EXPLODING = "gradient-exploding"
SLOWER = "throughput-drop"
CREEP = "memory-creep"

_WINDOW = 20  # points that all must be off: single batches jump and come back
_FEWEST = 3 * _WINDOW
_RISE, _RISE_DEVIATIONS = 0.25, 8.0  # above the best window, of its median and of its own deviation
_PLATEAU_POINTS, _PLATEAU_STEPS, _PLATEAU_GAIN, _FROM_START, _PLATEAU_FIRST = 200, 1000.0, 0.02, 0.05, 20
_SCALE_POINTS, _SCALE_HIGH, _SCALE_LOW = 10, 256.0, 1.0
_NORM_POINTS, _NORM_TIMES, _NORM_DEVIATIONS = 8, 10.0, 12.0
_SLOW_POINTS, _SLOW_FEWEST, _SLOW_TIMES, _SLOW_SECS = 40, 120, 1.4, 600.0
_CREEP_POINTS, _CREEP_PARTS, _CREEP_PART, _CREEP_ALL = 64, 8, 0.01, 0.2


@dataclass(frozen=True, slots=True)
class Trouble:
    """A number that went wrong and stays so."""

    fingerprint: str
    since: float  # step
    text: str
    at: float | None = None  # when a watch told of it first; None: read from logs that are over


def troubles(told: Mapping[str, Series]) -> list[Trouble]:
    """Return what is wrong with the series of one job: "loss", "grad_norm", "loss_scale", "step_secs", "memory"."""
    return [found for name, test in _TESTS if name in told for found in test(told[name].points)]


def deviation(values: Sequence[float]) -> float:
    """Return the median deviation from the median, scaled to the standard deviation of normal values."""
    middle = median(list(values))
    return 1.4826 * median([abs(value - middle) for value in values])


def _calmest(values: Sequence[float]) -> Sequence[float]:
    """Return the window with the lowest median: what the job can do when it is well."""
    windows = [values[at : at + _WINDOW] for at in range(0, len(values) - _WINDOW + 1, _WINDOW // 2)]
    return min(windows, key=lambda window: median(list(window)))


def _rising(points: Sequence[tuple[float, float]]) -> Iterator[Trouble]:
    """The whole last window lies above the best earlier one by far more than that one's own noise."""
    found = [(step, value) for step, value in points if math.isfinite(value)]
    if len(found) < _FEWEST:
        return
    values = [value for _, value in found]
    best = _calmest(values[:-_WINDOW])
    base = median(best)
    bound = base + max(_RISE * abs(base), _RISE_DEVIATIONS * deviation(best))
    recent = values[-_WINDOW:]
    if base <= 0 or sorted(recent)[_WINDOW // 10] <= bound:
        return
    first = len(values) - next((n for n, value in enumerate(reversed(values)) if value <= bound), len(values))
    early, late = median(recent[: _WINDOW // 2]), median(recent[_WINDOW // 2 :])
    climbing = late - early > 2 * deviation(best) or late > 2 * base
    what = "climbs" if climbing else "jumped and stays up"
    yield Trouble(
        DIVERGING if climbing else SPIKE,
        found[first][0],
        f"since step {found[first][0]:g} the loss {what}: {late:.4g}, its best was {base:.4g}",
    )


def _flat(points: Sequence[tuple[float, float]]) -> Iterator[Trouble]:
    """From the very start on nothing is learnt: the second half lies where the first steps lay."""
    if len(points) < _PLATEAU_POINTS or points[-1][0] - points[0][0] < _PLATEAU_STEPS or points[0][0] > _FROM_START * points[-1][0]:
        return
    begin, end = points[0][0], points[-1][0]
    first = [value for step, value in points if step - begin <= _FROM_START * (end - begin)]
    if len(first) < _PLATEAU_FIRST:
        first = [value for _, value in points[:_PLATEAU_FIRST]]
    last = [value for step, value in points if step - begin >= (end - begin) / 2]
    before, after = median(first), median(last)
    if before > 0 and all(map(math.isfinite, (before, after))) and abs(before - after) < _PLATEAU_GAIN * before:
        yield Trouble(PLATEAU, begin, f"after {end - begin:.0f} steps the loss is where it began: {after:.4g}")


def _collapsed(points: Sequence[tuple[float, float]]) -> Iterator[Trouble]:
    """The loss scale fell to the bottom and stays there: every step overflows."""
    values = [value for _, value in points]
    recent = values[-_SCALE_POINTS:]
    if len(values) >= 2 * _SCALE_POINTS and max(values) >= _SCALE_HIGH and max(recent) <= _SCALE_LOW:
        first = len(values) - next(n for n, value in enumerate(reversed(values)) if value > _SCALE_LOW)
        yield Trouble(
            OVERFLOW, points[first][0], f"since step {points[first][0]:g} the loss scale stays at {recent[-1]:g}, it was {max(values):g}"
        )


def _exploding(points: Sequence[tuple[float, float]]) -> Iterator[Trouble]:
    """All last gradient norms are many times those of the calmest time."""
    values = [value for _, value in points if math.isfinite(value)]
    if len(values) < _FEWEST:
        return
    best, recent = _calmest(values[:-_NORM_POINTS]), values[-_NORM_POINTS:]
    base = median(best)
    if base > 0 and min(recent) > max(_NORM_TIMES * base, base + _NORM_DEVIATIONS * deviation(best)):
        step = points[-_NORM_POINTS][0]
        yield Trouble(EXPLODING, step, f"since step {step:g} the gradient norm is about {median(recent):.3g}, usual is {base:.3g}")


def _slower(points: Sequence[tuple[float, float]]) -> Iterator[Trouble]:
    """Three quarters of the last steps take much longer than the usual step, for ten minutes at least."""
    if len(points) < _SLOW_FEWEST:
        return
    count = _lasting(points)
    if not count:
        return
    values = [value for _, value in points]
    earlier, recent = values[:-count], values[-count:]
    base, quarter = median(earlier), sorted(recent)[count // 4]
    if base > 0 and quarter > max(_SLOW_TIMES * base, base + 5 * deviation(earlier)):
        step = points[-count][0]
        yield Trouble(SLOWER, step, f"a step takes {median(recent):.3g} s, it took {base:.3g} s before step {step:g}")


def _lasting(points: Sequence[tuple[float, float]]) -> int:
    """Return how many of the last points cover ten minutes, at least a window; 0 where that is more than half of all."""
    step, secs = points[-1]
    for count in range(_SLOW_POINTS, len(points) // 2):
        before, _ = points[-count]
        if (step - before) * secs >= _SLOW_SECS:
            return count
    return 0


def _creeping(points: Sequence[tuple[float, float]]) -> Iterator[Trouble]:
    """Memory grows from part to part without ever levelling off, and by much in all."""
    settled = points[len(points) // 10 :]
    if len(settled) < _CREEP_POINTS:
        return
    size = len(settled) // _CREEP_PARTS
    parts = [median([value for _, value in settled[at * size : (at + 1) * size]]) for at in range(_CREEP_PARTS)]
    rises = [after - before for before, after in pairwise(parts)]
    if parts[0] > 0 and min(rises) > _CREEP_PART * parts[0] and parts[-1] > (1 + _CREEP_ALL) * parts[0]:
        text = f"allocated memory grew from {parts[0]:.3g} to {parts[-1]:.3g} GB since step {settled[0][0]:g} and never levels off"
        yield Trouble(CREEP, settled[0][0], text)


_TESTS = (
    ("loss", _rising),
    ("loss", _flat),
    ("loss_scale", _collapsed),
    ("grad_norm", _exploding),
    ("step_secs", _slower),
    ("memory", _creeping),
)
