"""Find the family that a job belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import re2

MAX_NAME = 512


class Families:
    """Apply the configured patterns in order; the name itself is the family where none matches."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns: list[Any] = [re2.compile(pattern) for pattern in patterns]

    def of(self, job: str) -> str:
        """Return a job's family."""
        for pattern in self._patterns:
            match = pattern.search(job[:MAX_NAME])
            if match and match.group("family"):
                return str(match.group("family"))
        return job
