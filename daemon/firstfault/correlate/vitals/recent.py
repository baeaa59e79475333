"""Keep the newest numbers of a kind and their order, so that their median costs nothing."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator


class Recent:
    """The last so many numbers, oldest first."""

    __slots__ = ("_numbers", "_ordered")

    def __init__(self, most: int, numbers: Iterable[float] = ()) -> None:
        self._numbers: deque[float] = deque(maxlen=most)
        self._ordered: list[float] = []
        self.extend(numbers)

    def append(self, number: float) -> None:
        """Add a number; the oldest gives way where there is no room."""
        if len(self._numbers) == self._numbers.maxlen:
            del self._ordered[bisect_left(self._ordered, self._numbers[0])]
        self._numbers.append(number)
        insort(self._ordered, number)

    def extend(self, numbers: Iterable[float]) -> None:
        """Add several numbers."""
        for number in numbers:
            self.append(number)

    @property
    def median(self) -> float:
        """Return the middle number; IndexError where there is none."""
        ordered = self._ordered
        half = len(ordered) // 2
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

    @property
    def largest(self) -> float:
        return self._ordered[-1]

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[float]:
        return iter(self._numbers)
