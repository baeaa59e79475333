"""Build the values that these tests are about."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from firstfault.errors import FirstFaultError
from firstfault.model import Change, Event, Incident, JobKey, Line, Stamp, Verdict, Who
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load

NOW = 1_800_000_000.0


def incident(name: str = "i1", **changes: Any) -> Incident:
    """Return a settled incident that names rank 5."""
    line = Line("rank5.log", 7, "CUDA out of memory")
    verdict = Verdict("rank", (5,), ("gpu-7",), confidence=0.97, summary="rank 5 failed first")
    one = Incident(name, JobKey("team", "train-7b", "run1", 2), 0, "settled", "cuda-out-of-memory", verdict, NOW - 5, NOW, None, NOW - 4)
    return replace(one, evidence=(line,), **changes)


def change(kind: str = "settled", one: Incident | None = None, at: float = NOW) -> Change:
    """Return a change to an incident."""
    return Change(kind, one or incident(), at)  # type: ignore[arg-type]


def event(name: str = "s1@4/cuda-out-of-memory/line", rank: int | None = 5) -> Event:
    """Return an event of one rank."""
    return Event(name, "cuda-out-of-memory", "line", "initiating", JobKey("team", "train-7b"), Who(rank=rank), Stamp(NOW), "s1", 4)


class Heard:
    """Remember what was reported, by name."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.calls.append((name, values))

    def names(self) -> list[str]:
        """Return the names of what was reported, in order."""
        return [name for name, _ in self.calls]

    def errors(self) -> list[FirstFaultError]:
        """Return the errors that were reported."""
        return [value for _, values in self.calls for value in values if isinstance(value, FirstFaultError)]


@functools.cache
def shipped() -> RuleSet:
    """Return the shipped entries, loaded once for all tests."""
    return load()
