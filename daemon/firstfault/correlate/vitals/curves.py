"""Keep the loss curves of a job's earlier attempts in little room, and tell when a new attempt starts above all of them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firstfault.correlate.clocks import deviation, median
from firstfault.correlate.vitals.numbers import Trouble
from firstfault.correlate.vitals.series import WINDOW, Series

ABOVE = "loss-above-earlier-attempts"
MOST_ATTEMPTS, MOST_BLOCKS = 8, 96  # kept of one job family, and of one attempt
_LEAST, _DEVIATIONS = 0.10, 8.0  # above the earlier attempts: of their level, and of a window's median
_FALLEN, _RISEN = 0.02, 0.05  # a start that falls by more and never rises so much is on its way down
_SMOOTHED = 10  # points


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of an attempt's loss."""

    first: float  # step
    last: float
    level: float  # median
    spread: float  # deviation


class Curves:
    """The attempts of one job family, oldest first."""

    def __init__(self) -> None:
        self.attempts: deque[tuple[Block, ...]] = deque(maxlen=MOST_ATTEMPTS)

    def keep(self, loss: Series | None) -> None:
        """Keep the loss of an attempt that is over, unless it is too short to compare anything with."""
        points = [(step, value) for step, value in loss.points if math.isfinite(value)] if loss is not None else []
        if len(points) < 2 * WINDOW:
            return
        size = max(_SMOOTHED, -(-len(points) // MOST_BLOCKS))
        self._keep(tuple(_block(points[at : at + size]) for at in range(0, len(points), size)))

    def _keep(self, blocks: tuple[Block, ...]) -> None:
        if blocks not in self.attempts:
            self.attempts.append(blocks)

    def above(self, loss: Series) -> Trouble | None:
        """Tell of a start that does not fall, and lies above every earlier attempt at the same steps."""
        if not self.attempts:
            return None
        recent = [(step, value) for step, value in loss.points[-2 * WINDOW :] if math.isfinite(value)]
        if len(recent) < 2 * WINDOW or not _wavers(loss.points):
            return None
        known = [self._known(half) for half in (recent[:WINDOW], recent[WINDOW:])]
        if not all(known):
            return None
        levels = []
        for half, (level, spread) in zip((recent[:WINDOW], recent[WINDOW:]), known, strict=True):  # type: ignore[misc]
            now = median([value for _, value in half])
            if level <= 0 or now <= level + max(_LEAST * level, _DEVIATIONS * 1.2533 * spread / math.sqrt(WINDOW)):
                return None
            levels.append((now, level))
        now, level = levels[-1]
        where = f"at step {recent[-1][0]:g}"
        text = f"the loss of this attempt is {now:.4g} {where}, above every earlier attempt at the same steps: {level:.4g}"
        since = loss.points[0][0]
        return Trouble(ABOVE, since, text)

    def _known(self, half: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
        """Return the highest level that an earlier attempt had at these steps, and its spread; None where none made them."""
        first, last = half[0][0], half[-1][0]
        found = []
        for attempt in self.attempts:
            if attempt[0].first <= first and attempt[-1].last >= last:
                blocks = [one for one in attempt if one.last >= first and one.first <= last]
                found += [(max(one.level for one in blocks), max(one.spread for one in blocks))] if blocks else []
        return max(found, default=None)

    def state(self) -> list[Any]:
        """Return everything as plain values."""
        return [[[one.first, one.last, one.level, one.spread] for one in attempt] for attempt in self.attempts]

    def load(self, state: Sequence[Any]) -> None:
        """Add what `state` gave; an attempt that is known is not kept twice."""
        for attempt in state:
            self._keep(tuple(Block(*one) for one in attempt))


def _block(points: Sequence[tuple[float, float]]) -> Block:
    values = [value for _, value in points]
    return Block(points[0][0], points[-1][0], median(values), deviation(values))


def _wavers(points: Sequence[tuple[float, float]]) -> bool:
    """Tell whether a loss does not simply fall from its first points to its last."""
    values = [value for _, value in points if math.isfinite(value)]
    smooth = [median(values[at : at + _SMOOTHED]) for at in range(0, len(values) - _SMOOTHED + 1, _SMOOTHED)]
    if len(smooth) < 4:
        return False
    if smooth[-1] > (1 - _FALLEN) * smooth[0]:
        return True
    lowest = smooth[0]
    for one in smooth:
        if one > (1 + _RISEN) * lowest:
            return True
        lowest = min(lowest, one)
    return False
