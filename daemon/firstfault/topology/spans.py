"""How long a signal must stay away before its failure counts as fixed: what an entry says, measured and told. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from firstfault.topology.mileage import Mileage

_COUNTED = {"steps": "steps", "starts": "starts", "saves": "saves", "loads": "loads", "epochs": "epochs", "jobs": "jobs", "runs": "jobs"}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


@dataclass(frozen=True, slots=True)
class Span:
    """So much of one thing."""

    amount: float
    unit: str  # as the entry says it

    @property
    def countable(self) -> bool:
        """Tell whether logs show it; requests of a server they do not."""
        return self.unit in _COUNTED or self.unit in _SECONDS

    def done(self, mileage: Mileage) -> float:
        """Return how much of it is done."""
        if self.unit in _COUNTED:
            return float(getattr(mileage, _COUNTED[self.unit]))
        return mileage.secs / _SECONDS[self.unit] if self.unit in _SECONDS else 0.0

    def over(self, mileage: Mileage) -> bool:
        """Tell whether all of it is done."""
        return self.countable and self.done(mileage) >= self.amount

    def words(self, mileage: Mileage) -> str:
        """Say how much of it is done: "1200 of 2000 steps", "3.5 of 24 hours of running"."""
        if not self.countable:
            return f"{self.unit} are not counted"
        unit = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}.get(self.unit)
        done = min(self.done(mileage), self.amount)
        shown = f"{done:.0f}" if self.unit in _COUNTED and self.unit != "epochs" else f"{done:.1f}"
        return f"{shown} of {self.amount:g} {f'{unit} of running' if unit else self.unit}"


def read_span(text: str) -> Span:
    """Read what an entry says, such as "2000 steps" or "24h"; what is neither is so much of an uncounted thing."""
    match = _SPAN.fullmatch(text.strip())
    return Span(float(match[1]), match[2]) if match else Span(0.0, text)


def clean_words(mileage: Mileage) -> str:
    """Say how long something stayed away: "3 d 4 h of running, 12400 steps"."""
    parts = [duration(mileage.secs) + " of running"] if mileage.secs >= 1 else []
    parts += [f"{getattr(mileage, name):.0f} {name}" for name in ("steps", "starts") if getattr(mileage, name) >= 1]
    return ", ".join(parts)


def duration(secs: float) -> str:
    """Write a duration by its two largest units: "3 d 4 h"."""
    parts = []
    left = int(secs)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"
