"""Cut the observations of a run into attempts: one launch of all its ranks each.

Launchers count attempts each for themselves, overwrite each other's folders, and print no line at a restart. What holds everywhere
is that one slot (a rank, or a local rank of a node) starts once an attempt: when a slot starts again, a new attempt has begun,
and every other slot's next start belongs to it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firstfault.correlate.roster import Roster
from firstfault.model import Event, Fact, Observation, Progress


@dataclass(frozen=True, slots=True)
class Slice:
    """The observations of one attempt."""

    run: str
    number: int
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class _Start:
    at: float
    slot: tuple
    incarnation: tuple  # what tells two launches of one slot apart: pid, or stream


def cut(observations: Sequence[Observation]) -> list[Slice]:
    """Return the attempts of all runs of one job in order; a run whose logs show no restart is one attempt."""
    runs = by_run(observations)
    return [Slice(run, part.number, part.observations) for run in sorted(runs) for part in _cut(run, runs[run])]


def by_run(observations: Sequence[Observation]) -> dict[str, list[Observation]]:
    """Sort observations by run; streams that name none (agents' consoles, kernel logs) join the only run, or that of their node."""
    named: dict[str, list[Observation]] = defaultdict(list)
    homes: dict[str | None, Counter[str]] = defaultdict(Counter)
    for one in observations:
        if one.job.run:
            named[one.job.run].append(one)
            homes[one.who.node][one.job.run] += 1
    if not named:
        return {"": list(observations)}
    last = max(named)
    for one in observations:
        if not one.job.run:
            named[next(iter(named)) if len(named) == 1 else _run_of(one, homes, last)].append(one)
    return named


def _run_of(one: Observation, homes: dict[str | None, Counter[str]], last: str) -> str:
    runs = homes.get(one.who.node)
    return runs.most_common(1)[0][0] if runs else last


def _cut(run: str, observations: Sequence[Observation]) -> list[Slice]:
    hints = {one.job.attempt for one in observations if one.job.attempt is not None}
    bounds = boundaries(observations)
    if not bounds:
        return (
            _by_hint(observations)
            if len(hints) > 1 and not _timed(observations)
            else [Slice(run, min(hints, default=0) if len(hints) == 1 else 0, tuple(observations))]
        )
    streams = _stream_spans(observations)
    parts: dict[int, list[Observation]] = defaultdict(list)
    for one in observations:
        parts[_place(one, bounds, streams)].append(one)
    base = min(hints, default=0) if len(hints) == 1 else 0
    return [Slice(run, base + number, tuple(parts[number])) for number in sorted(parts)]


def boundaries(observations: Iterable[Observation]) -> list[float]:
    """Return the times at which a new attempt began (not counting the first), seconds by the machines' clocks."""
    starts = sorted(_starts(list(observations)), key=lambda start: (start.at, start.slot))
    begun: dict[tuple, tuple] = {}
    bounds: list[float] = []
    for start in starts:
        if start.slot in begun and begun[start.slot] != start.incarnation:
            bounds.append(start.at)
            begun = {}
        begun[start.slot] = start.incarnation
    return bounds


def _starts(observations: list[Observation]) -> Iterable[_Start]:
    roster = Roster.build(observations)
    for one in observations:
        if isinstance(one, Fact) and one.name == "start" and one.time.at is not None:
            slot = _slot(one, roster)
            if slot is not None:
                yield _Start(one.time.at, slot, ("pid", one.who.pid) if one.who.pid is not None else ("stream", one.stream))
    yield from _file_starts(observations, roster)


def _file_starts(observations: list[Observation], roster: Roster) -> Iterable[_Start]:
    """Per-rank files of torchrun: each `attempt_N` folder is one incarnation of its slot; it starts at its first stamp."""
    first: dict[tuple, float] = {}
    for one in observations:
        at = one.first.at if isinstance(one, Progress) else one.time.at
        if one.job.attempt is None or at is None or one.who.agent:
            continue
        slot = _slot(one, roster)
        if slot is not None:
            key = (slot, one.job.attempt)
            first[key] = min(at, first.get(key, at))
    several = defaultdict(set)
    for slot, attempt in first:
        several[slot].add(attempt)
    for (slot, attempt), at in first.items():
        if len(several[slot]) > 1:
            yield _Start(at, ("file", *slot), ("attempt", attempt))


def _slot(one: Observation, roster: Roster) -> tuple | None:
    node = roster.node(one.who.node) if one.who.node else roster.home(one.stream)
    if one.who.local_rank is not None:
        return "local", node, one.who.local_rank
    return ("rank", one.who.rank) if one.who.rank is not None else None


def _stream_spans(observations: Iterable[Observation]) -> dict[str, float]:
    """Return the first stamp of every stream that belongs to one attempt by its folder."""
    first: dict[str, float] = {}
    for one in observations:
        at = one.first.at if isinstance(one, Progress) else one.time.at
        if at is not None and one.job.attempt is not None and not one.who.agent:
            first[one.stream] = min(at, first.get(one.stream, at))
    return first


def _place(one: Observation, bounds: list[float], streams: dict[str, float]) -> int:
    at = streams.get(one.stream)
    if at is None:
        stamp = one.last if isinstance(one, Progress) else one.time
        at = stamp.at
    if at is None:
        return 0
    return sum(1 for bound in bounds if at >= bound)


def _timed(observations: Iterable[Observation]) -> bool:
    return any(one.time.at is not None for one in observations if isinstance(one, Event | Fact))


def _by_hint(run: str, observations: Iterable[Observation]) -> list[Slice]:
    parts: dict[int, list[Observation]] = defaultdict(list)
    for one in observations:
        parts[one.job.attempt or 0].append(one)
    return [Slice(run, number, tuple(parts[number])) for number in sorted(parts)]
