"""What came of trying a way to correlators or brokers before anything depends on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one try."""

    fine: bool
    text: str  # what was tried, and what to do where it failed
