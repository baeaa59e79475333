"""Cut the observations of a run into attempts: one launch of all its ranks each.

Launchers count attempts each for themselves, overwrite each other's folders, and print no line at a restart. What holds everywhere
is that one slot (a rank, or a local rank of a node) starts once an attempt: when a slot starts again, a new attempt has begun,
and every other slot's next start belongs to it.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firstfault.correlate.clocks import Clocks
from firstfault.correlate.roster import Roster
from firstfault.model import Event, Fact, Observation, Progress

_ENDS = ("exit", "closing", "restart")


@dataclass(frozen=True, slots=True)
class Slice:
    """The observations of one attempt."""

    run: str
    number: int
    observations: tuple[Observation, ...]
    roster: Roster | None = None  # of exactly these observations, where one was made on the way
    clocks: Clocks | None = None


@dataclass(frozen=True, slots=True)
class _Start:
    at: float
    slot: tuple
    incarnation: tuple  # what tells two launches of one slot apart: pid, attempt folder, or nothing but the stream


def cut(observations: Sequence[Observation]) -> list[Slice]:
    """Return the attempts of all runs of one job in order; a run whose logs show no restart is one attempt."""
    runs = by_run(sorted(observations, key=position))
    return [part for run in sorted(runs) for part in _cut(run, runs[run])]


def position(one: Observation) -> tuple[str, int, str]:
    """Return what observations are sorted by, so that nothing depends on the order in which they came."""
    return one.stream, one.offset, one.id


def by_run(observations: Sequence[Observation]) -> dict[str, list[Observation]]:
    """Sort observations by run; streams that name none (agents' consoles, kernel logs) join the only run, or that of their node."""
    runs = {one.job.run for one in observations if one.job.run}
    if len(runs) < 2:
        return {next(iter(runs), ""): list(observations)}
    homes: dict[str | None, Counter[str]] = defaultdict(Counter)
    for one in observations:
        if one.job.run:
            homes[one.who.node][one.job.run] += 1
    named: dict[str, list[Observation]] = defaultdict(list)
    last = max(runs)
    for one in observations:
        named[one.job.run or _run_of(one, homes, last)].append(one)
    return named


def _run_of(one: Observation, homes: dict[str | None, Counter[str]], last: str) -> str:
    runs = homes.get(one.who.node)
    return runs.most_common(1)[0][0] if runs else last


def _cut(run: str, observations: Sequence[Observation]) -> list[Slice]:
    hints = {one.job.attempt for one in observations if one.job.attempt is not None}
    line = _Timeline(observations)
    bounds = line.boundaries()
    base = min(hints, default=0) if len(hints) == 1 else 0
    if not bounds:
        untimed = len(hints) > 1 and not _timed(observations)
        return _by_hint(run, observations) if untimed else [Slice(run, base, tuple(observations), line.roster, line.clocks)]
    spans, carried = line.folder_spans(), line.carried()
    parts: dict[int, list[Observation]] = defaultdict(list)
    for one in observations:
        if isinstance(one, Fact) and one.name == "placement":
            continue  # where a pod is holds for all that was launched in it
        at = spans.get(_folder(one), carried.get(one.id))
        parts[bisect.bisect_right(bounds, at) if at is not None else 0].append(one)
    placed = [one for one in observations if isinstance(one, Fact) and one.name == "placement"]
    return [Slice(run, base + number, (*parts[number], *placed)) for number in sorted(parts)]


def boundaries(observations: Iterable[Observation]) -> list[float]:
    """Return the times at which a new attempt began (not counting the first), seconds on the common scale of the nodes' clocks."""
    return _Timeline(sorted(observations, key=position)).boundaries()


class _Timeline:
    """The times of one run's observations, sorted by `position`, on one scale as far as the nodes' clocks could be compared."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.observations = observations
        self.roster = Roster.build(observations)
        self.clocks = Clocks.build(observations, self.roster)

    def first(self, one: Observation) -> float | None:
        """Return when what an observation speaks of began."""
        return self._put(one, one.first.at if isinstance(one, Progress) else one.time.at)

    def last(self, one: Observation) -> float | None:
        return self._put(one, one.last.at if isinstance(one, Progress) else one.time.at)

    def _put(self, one: Observation, at: float | None) -> float | None:
        if at is None:
            return None
        offset = self.clocks.offset(self.roster.place(one))
        return at if math.isinf(offset.error) else at - offset.seconds

    def boundaries(self) -> list[float]:
        starts = sorted(self._starts(), key=lambda start: (start.at, start.slot, start.incarnation))
        ended = [one for one in self.observations if isinstance(one, Fact) and one.name in _ENDS]
        ends = sorted(at for at in map(self.last, ended) if at is not None)
        begun: dict[tuple, _Start] = {}
        bounds: list[float] = []
        for start in starts:
            if start.slot in begun and _again(begun[start.slot], start, ends):
                bounds.append(start.at)
                begun = {}
            begun[start.slot] = start
        return bounds

    def _starts(self) -> Iterable[_Start]:
        for one in self.observations:
            if isinstance(one, Fact) and one.name == "start" and (at := self.first(one)) is not None:
                slot = self._slot(one)
                if slot is not None:
                    yield _Start(at, slot, ("pid", one.who.pid) if one.who.pid is not None else ("stream", one.stream))
        yield from self._file_starts()

    def _file_starts(self) -> Iterable[_Start]:
        """Per-rank files of torchrun: each `attempt_N` folder is one incarnation of its slot; it starts at its first stamp."""
        first: dict[tuple, float] = {}
        if len({one.job.attempt for one in self.observations if one.job.attempt is not None}) < 2:
            return
        for one in self.observations:
            at, slot = self.first(one), self._slot(one)
            if one.job.attempt is not None and at is not None and slot is not None and not one.who.agent:
                key = (slot, one.job.attempt)
                first[key] = min(at, first.get(key, at))
        several = defaultdict(set)
        for slot, attempt in first:
            several[slot].add(attempt)
        for (slot, attempt), at in first.items():
            if len(several[slot]) > 1:
                yield _Start(at, ("file", *slot), ("attempt", attempt))

    def _slot(self, one: Observation) -> tuple | None:
        if one.who.local_rank is not None:
            return "local", self.roster.node(one.who.node) if one.who.node else self.roster.home(one.stream), one.who.local_rank
        return ("rank", one.who.rank) if one.who.rank is not None else None

    def folder_spans(self) -> dict[tuple | None, float]:
        """Return the first stamp of every launch's folder: stderr often has none of its own, stdout beside it has."""
        first: dict[tuple | None, float] = {}
        for one in self.observations:
            at, folder = self.first(one), _folder(one)
            if at is not None and folder is not None:
                first[folder] = min(at, first.get(folder, at))
        return first

    def carried(self) -> dict[str, float]:
        """Return a time for every observation: its own, else that of the last stamped one before it in its stream."""
        times: dict[str, float] = {}
        stream, at = "", None
        for one in self.observations:
            if one.stream != stream:
                stream, at = one.stream, None
            own = self.last(one)
            at = own if own is not None else at
            if at is not None:
                times[one.id] = at
        return times


def _again(before: _Start, start: _Start, ends: list[float]) -> bool:
    """Tell whether a slot's start is another launch: another pid or folder, or something of the job ended in between."""
    if before.incarnation[0] != "stream" or start.incarnation[0] != "stream":
        return before.incarnation != start.incarnation
    first = bisect.bisect_right(ends, before.at)
    return first < len(ends) and ends[first] < start.at


def _folder(one: Observation) -> tuple | None:
    """Return the folder of one launch of one slot, if the stream belongs to one: all its files are of one attempt."""
    if one.job.attempt is None or one.who.agent or (one.who.local_rank is None and one.who.rank is None):
        return None
    return one.who.node, one.who.local_rank if one.who.local_rank is not None else -1, one.job.attempt


def _timed(observations: Iterable[Observation]) -> bool:
    return any(one.time.at is not None for one in observations if isinstance(one, Event | Fact))


def _by_hint(run: str, observations: Iterable[Observation]) -> list[Slice]:
    parts: dict[int, list[Observation]] = defaultdict(list)
    for one in observations:
        parts[one.job.attempt or 0].append(one)
    return [Slice(run, number, tuple(parts[number])) for number in sorted(parts)]
