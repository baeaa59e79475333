"""The only place that asks the machine for the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tell the time; tests pass one that they move by hand."""

    def now(self) -> float:
        """Return seconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never jumps."""
        ...


class SystemClock:
    """Tell the machine's time."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """Tell the time it was given; both hands move together."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move both hands forward by `seconds`."""
        self._now += seconds
