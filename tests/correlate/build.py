"""Short ways to build observations for tests of the verdict."""

from __future__ import annotations

import itertools
from typing import Any

from firstfault.model import Event, Fact, JobKey, Line, Progress, Stamp, Statement, Who

_numbers = itertools.count(1)
JOB = JobKey(job="t")


def at(seconds: float | None, precision: float = 0.001, source: str = "line") -> Stamp:
    return Stamp() if seconds is None else Stamp(1_800_000_000.0 + seconds, source, precision, True)  # type: ignore[arg-type]


def fact(kind: str, /, who: Who | None = None, when: float | None = None, stream: str = "s", job: JobKey = JOB, **values: Any) -> Fact:
    number = next(_numbers)
    line = Line(f"{stream}.log", number, f"{kind} {values}", stream, number)
    return Fact(f"{stream}@{number}/{kind}", kind, job, who or Who(), at(when), stream, number, values, line)


def event(
    fingerprint: str,
    who: Who,
    when: float | None = None,
    role: str = "initiating",
    stream: str = "s",
    exception: str = "",
    job: JobKey = JOB,
    frames: tuple = (),
) -> Event:
    number = next(_numbers)
    line = Line(f"{stream}.log", number, fingerprint, stream, number)
    statement = Statement("traceback", exception, "", frames) if exception or frames else None
    return Event(f"{stream}@{number}/{fingerprint}/x", fingerprint, "x", role, job, who, at(when), stream, number, {}, (line,), statement)  # type: ignore[arg-type]


def progress(who: Who, steps: list[tuple[float, float]], stream: str = "s", job: JobKey = JOB, **values: float) -> Progress:
    number = next(_numbers)
    stamps = tuple((step, 1_800_000_000.0 + when) for step, when in steps)
    first, last = (at(steps[0][1]), at(steps[-1][1])) if steps else (Stamp(), Stamp())
    step = steps[-1][0] if steps else None
    return Progress(
        f"{stream}@{number}/progress", job, who, stream, first, last, max(1, len(steps)), None, step, last, stamps, values, number
    )
