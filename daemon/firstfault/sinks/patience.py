"""What a sink does while its receiver fails: wait longer each time, and tell people once what an outage is about; pure."""

from __future__ import annotations


class Patience:
    """Failures in a row of one receiver."""

    def __init__(self, first_secs: float = 1.0, most_secs: float = 30.0) -> None:
        self._first = first_secs
        self._most = most_secs
        self._failures = 0
        self._told = ""

    @property
    def tried(self) -> bool:
        """Tell whether the last try failed."""
        return self._failures > 0

    def words(self, reason: str, detail: str) -> str:
        """Return what to tell people of a failure; nothing where the same reason was told right before."""
        said, self._told = self._told, reason
        return "" if said == reason else detail or reason

    def wait(self, after_secs: float | None = None) -> float:
        """Count a failed try; return the seconds until the next one: what the receiver asks for, else doubling and bounded."""
        self._failures += 1
        return after_secs or min(self._most, self._first * 2 ** min(self._failures - 1, 16))

    def well(self) -> None:
        """Begin anew: the receiver answers."""
        self._failures, self._told = 0, ""
