"""Keep a long series of numbers in little room: how it began, the newest ones, and ever fewer in between."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 768
_KEPT_FIRST, _KEPT_WHOLE = 64, 256  # of the oldest and of the newest


class Series:
    """Points (step, value), oldest first."""

    __slots__ = ("points",)

    def __init__(self, points: Sequence[tuple[float, float]] = ()) -> None:
        self.points: list[tuple[float, float]] = [(step, value) for step, value in points]
        self._thin()

    def add(self, step: float, value: float) -> None:
        """Append a point; one that is not newer than the last begins another attempt and is left out."""
        if self.points and step <= self.points[-1][0]:
            return
        self.points.append((step, value))
        self._thin()

    def _thin(self) -> None:
        while len(self.points) > MOST:
            middle = self.points[_KEPT_FIRST:-_KEPT_WHOLE]
            self.points = [*self.points[:_KEPT_FIRST], *middle[::2], *self.points[-_KEPT_WHOLE:]]

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.points]

    def __len__(self) -> int:
        return len(self.points)
