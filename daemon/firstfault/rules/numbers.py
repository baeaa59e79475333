"""Judge a series of a step line's value, newest last: is it not finite, does it jump, fall to nothing, or stand still?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

FEWEST = 8  # earlier values before a jump can be told from a start
PLATEAU = 40  # values, half of which are compared with the other half
DEVIATIONS = 6.0  # times the median deviation: a normal series crosses it about once in ten thousand values
JUMP = 0.5  # of the median, at least: small noise about a steady value is no spike
FALL = 0.9  # of the median, at least
GAIN = 0.001  # of the median: what a series that still falls gains at least


def misbehaves(kind: str, values: Sequence[float]) -> bool:
    """Tell whether the newest value misbehaves in that way: nan, inf, spike, drop or plateau."""
    return bool(values) and _TESTS[kind](values)


def _nan(values: Sequence[float]) -> bool:
    return math.isnan(values[-1])


def _inf(values: Sequence[float]) -> bool:
    return math.isinf(values[-1])


def _spike(values: Sequence[float]) -> bool:
    return _deviates(values, JUMP, 1.0)


def _drop(values: Sequence[float]) -> bool:
    return _deviates(values, FALL, -1.0)


def _deviates(values: Sequence[float], least: float, direction: float) -> bool:
    earlier = [value for value in values[:-1] if math.isfinite(value)]
    if len(earlier) < FEWEST or not math.isfinite(values[-1]):
        return False
    middle = median(earlier)
    spread = median(abs(value - middle) for value in earlier)
    return direction * (values[-1] - middle) > max(DEVIATIONS * spread, least * abs(middle))


def _plateau(values: Sequence[float]) -> bool:
    recent = [value for value in values[-PLATEAU:] if math.isfinite(value)]
    if len(recent) < PLATEAU:
        return False
    before, after = median(recent[: PLATEAU // 2]), median(recent[PLATEAU // 2 :])
    return before - after < GAIN * abs(before)


_TESTS = {"nan": _nan, "inf": _inf, "spike": _spike, "drop": _drop, "plateau": _plateau}
