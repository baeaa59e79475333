"""Keep a long series of numbers in little room: how it began, the newest ones, ever fewer in between, and its best and its drift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from firstfault.correlate.clocks import deviation, median
from firstfault.correlate.vitals.drift import Drift

MOST = 768
WINDOW = 20  # points that are judged together
_KEPT_FIRST, _KEPT_WHOLE = 64, 256  # of the oldest and of the newest
_EVERY = WINDOW // 2  # points, after which the next window is looked at


class Series:
    """Points (step, value), oldest first. The windows of the newest `WINDOW` points are never its best."""

    __slots__ = ("_fresh", "best", "drift", "points")

    def __init__(self, points: Sequence[tuple[float, float]] = (), drift: Drift | None = None) -> None:
        self.points: list[tuple[float, float]] = []
        self.best: tuple[float, float] | None = None  # median and deviation of the window with the lowest median
        self.drift = drift
        self._fresh = 0  # points since the last window that was looked at
        for step, value in points:
            self.add(step, value)

    def add(self, step: float, value: float, weight: float = 0.0) -> None:
        """Append a point; one that is not newer than the last begins another attempt and is left out."""
        points = self.points
        if points and step <= points[-1][0]:
            return
        points.append((step, value))
        self._fresh += 1
        if self._fresh >= _EVERY and len(points) >= 2 * WINDOW:
            self._look()
        if len(points) > MOST:
            self._thin()
        if self.drift is not None:
            self.drift.add(step, value, weight)

    def _look(self) -> None:
        self._fresh = 0
        values = [value for _, value in self.points[-2 * WINDOW : -WINDOW] if math.isfinite(value)]
        if len(values) < WINDOW // 2:
            return
        middle = median(values)
        if self.best is None or middle < self.best[0]:
            self.best = middle, deviation(values, middle)

    def _thin(self) -> None:
        middle = self.points[_KEPT_FIRST:-_KEPT_WHOLE]
        self.points = [*self.points[:_KEPT_FIRST], *middle[::2], *self.points[-_KEPT_WHOLE:]]

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.points]

    def __len__(self) -> int:
        return len(self.points)

    def state(self) -> dict[str, Any]:
        """Return everything as plain values."""
        drift = self.drift.state() if self.drift is not None else None
        return {"points": self.points, "best": self.best, "fresh": self._fresh, "drift": drift}

    def load(self, state: Any) -> None:
        """Take up `state`; a snapshot of an earlier version holds the points alone."""
        if not isinstance(state, dict):
            for step, value in state:
                self.add(step, value)
            return
        self.points = [(step, value) for step, value in state["points"]]
        self.best = tuple(state["best"]) if state["best"] else None
        self._fresh = state["fresh"]
        if self.drift is not None and state["drift"]:
            self.drift.load(state["drift"])
