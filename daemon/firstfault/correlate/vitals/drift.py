"""Tell a slow, lasting rise of a number by a cumulative sum (CUSUM) over the medians of blocks.

Windows that are compared by their medians see a jump of a quarter; a rise of a tenth that comes slowly and stays passes between them. The
sum collects by how much each block lies above the best level so far, less an allowance, and tells once that is more than chance brings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from firstfault.correlate.clocks import deviation, median
from firstfault.correlate.vitals.recent import Recent

BLOCK = 20  # numbers at least
ALLOWANCE = 0.06  # of the best level: what a block may lie above it without counting
BOUND = 0.4  # sum of what counts, in shares of the best level: ten blocks that lie a tenth above it
ALLOWED_DEVIATIONS, BOUND_DEVIATIONS = 1.0, 8.0  # the same in deviations of a block's median, where that is more
_MOST_OF_ONE = 0.25  # that one block may add: a spike or a pause is no drift
_FIRST_BLOCKS = 10  # by which the level of the beginning is known
_SMOOTHING = 0.1  # weight of the newest block in the level whose lowest value is the best
_REMEMBERED = 32


def run_length(allowance: float, bound: float) -> float:
    """Return the blocks that pass on average until such a sum tells of noise alone; both in deviations of a block (Siegmund's formula)."""
    high = bound + 1.166
    return (math.exp(2 * allowance * high) - 2 * allowance * high - 1) / (2 * allowance**2)


class Drift:
    """The sum of one series. `least` is what the weights of a block must add up to: seconds, where steps are short."""

    __slots__ = ("_block", "_first", "_least", "_level", "_moves", "_noises", "_weight", "best", "blocks", "newest", "since", "total")

    def __init__(self, least: float = 0.0) -> None:
        self._least = least
        self._block: list[float] = []
        self._first = 0.0  # step at which the block began
        self._weight = 0.0
        self._level: float | None = None
        self._noises = Recent(_REMEMBERED)  # deviation of a block's median, as the spread within the block has it
        self._moves = Recent(_REMEMBERED)  # from block to block
        self.best: float | None = None  # level
        self.newest = 0.0  # median of the last block
        self.blocks = 0
        self.total = 0.0
        self.since = 0.0  # step from which on the sum has grown

    def add(self, step: float, value: float, weight: float = 0.0) -> None:
        """Take the next number; one that is not finite counts for nothing here."""
        if not self._block:
            self._first = step
        if math.isfinite(value):
            self._block.append(value)
            self._weight += weight
        if len(self._block) >= BLOCK and self._weight >= self._least:
            self._close()

    def _close(self) -> None:
        block, self._block, self._weight = self._block, [], 0.0
        middle = median(block)
        self._noises.append(1.2533 * deviation(block, middle) / math.sqrt(len(block)))
        if self.blocks:
            self._moves.append(abs(middle - self.newest))
        self.blocks += 1
        self.newest = middle
        if self.blocks >= _FIRST_BLOCKS and self.best is not None and self.best > 0:
            self._sum(middle / self.best - 1.0)
        self._level = middle if self._level is None else self._level + _SMOOTHING * (middle - self._level)
        if self.best is None or self.blocks < _FIRST_BLOCKS:
            self.best = self._level
        self.best = min(self.best, self._level)

    def _sum(self, above: float) -> None:
        if self.total == 0.0:
            self.since = self._first
        allowed = max(ALLOWANCE, ALLOWED_DEVIATIONS * self.noise)
        self.total = min(2 * self.bound, max(0.0, self.total + min(_MOST_OF_ONE, above) - allowed))

    @property
    def noise(self) -> float:
        """Return the deviation of a block's median, as a share of the best level."""
        if not self.best or not len(self._noises):
            return 0.0
        moves = 1.4826 * self._moves.median / math.sqrt(2) if len(self._moves) else 0.0
        return max(self._noises.median, moves) / abs(self.best)

    @property
    def bound(self) -> float:
        return max(BOUND, BOUND_DEVIATIONS * self.noise)

    @property
    def tells(self) -> bool:
        """Tell whether the numbers lie above their best level for good."""
        return self.best is not None and self.best > 0 and self.total > self.bound and self.newest > (1 + ALLOWANCE) * self.best

    def state(self) -> list[Any]:
        """Return everything as plain values."""
        kept = [self._block, self._first, self._weight, self._level, list(self._noises), list(self._moves)]
        return [*kept, self.best, self.newest, self.blocks, self.total, self.since]

    def load(self, state: Sequence[Any]) -> None:
        """Take up `state`."""
        block, self._first, self._weight, self._level, noises, moves, *rest = state
        self.best, self.newest, self.blocks, self.total, self.since = rest
        self._block, self._noises, self._moves = list(block), Recent(_REMEMBERED, noises), Recent(_REMEMBERED, moves)
