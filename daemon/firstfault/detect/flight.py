"""Turn a flight-recorder dump into facts: which rank it is of, and what it was doing in each of its process groups."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any

from firstfault.detect.flight_dump import Dump, Elements, Work, read_dump
from firstfault.detect.flight_pickle import Limits, Refused
from firstfault.errors import InputError
from firstfault.model import Fact, JobKey, Line, Stamp, Stream
from firstfault.text.identity import Identity, identify

BY = "flight-recorder"
_KEPT = 16  # operations kept on either side of the one that is waited for, to compare ranks by
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|bin))?$")
# Sizes of these are the same on all ranks. Of the others (all_to_all, gather, scatter) they may differ by right.
_SAME_INPUT = frozenset({"all_reduce", "allreduce", "broadcast", "reduce", "barrier", "all_reduce_barrier"})
_SAME_BOTH = frozenset(
    {"all_gather", "_all_gather_base", "all_gather_single", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single"}
)
# A dump is written within a minute or two of the time-out that caused it. A file that is older or younger was asked for, or copied since.
_EARLIEST, _LATEST, _LATEST_SECS = 0.9, 1.5, 120.0


@dataclass(frozen=True, slots=True)
class _Source:
    """What all facts of one dump share."""

    stream: Stream
    identity: Identity
    rank: int

    def fact(self, name: str, at: float, entry: int, values: Mapping[str, Any], text: str, group_rank: int | None = None) -> Fact:
        """Make a fact about this rank; `entry` counts from 1 and is 0 for the dump as a whole."""
        who = replace(self.identity.who, rank=self.rank, agent=False, group_rank=group_rank)
        stamp = Stamp(at, "line", 0.001, True) if at else Stamp()
        line = Line(self.stream.path, entry, text, self.stream.id, entry)
        given = {key: value for key, value in values.items() if value is not None} | {"by": BY}
        return Fact(f"{self.stream.id}@{entry}/{name}", name, self.identity.job, who, stamp, self.stream.id, entry, given, line)


def read(stream: Stream, data: bytes, limits: Limits | None = None) -> list[Fact]:
    """Return the facts of one dump; `InputError` names the file and says why it cannot be read."""
    source = _source(stream)
    if source is None:
        raise InputError(f"{stream.path}: a flight-recorder dump must end in its rank, such as nccl_trace_rank_3: rename it")
    try:
        dump = read_dump(data, limits)
    except Refused as refused:
        raise InputError(
            f"{stream.path}: the flight-recorder dump is left out: {refused}; have torchfrtrace of the same PyTorch read it, or dump again"
        ) from None
    return list(_facts(source, dump, stream.written))


def unread(stream: Stream) -> list[Fact]:
    """Return the fact that a rank's dump was there, though it cannot be read: its recorder did dump."""
    source = _source(stream)
    return [source.fact("recorder", stream.written or 0.0, 0, {"unread": True}, "an unreadable flight-recorder dump")] if source else []


def settle(found: Iterable[tuple[Stream, Sequence[Fact]]], jobs: Iterable[tuple[str, str]]) -> Iterator[Fact]:
    """Yield the facts of all dumps under the job they belong to; `jobs` are the (namespace, job) that the logs speak of.

    Dumps lie in folders of their own, whose names are no job's. Where the logs are of one job, the dumps are of that job too.
    """
    known = set(jobs)
    for stream, facts in found:
        for fact in facts:
            yield replace(fact, job=_job(fact.job, known, stream.labels))


def _job(own: JobKey, known: set[tuple[str, str]], labels: Mapping[str, str]) -> JobKey:
    if (own.namespace, own.job) in known or len(known) > 1 or labels.get("job"):
        return own
    if known:
        namespace, job = next(iter(known))
        return replace(own, namespace=namespace, job=job)
    return replace(own, job=labels.get("__folder__") or own.job)


def _source(stream: Stream) -> _Source | None:
    match = _RANK.search(os.path.basename(stream.path))
    return _Source(stream, identify(stream), int(match[1])) if match else None


# facts ------------------------------------------------------------------------------------------------------------------------


def _facts(source: _Source, dump: Dump, written: float | None) -> Iterator[Fact]:
    yield _whole(source, dump)
    elements = Elements()
    sizes = {len(group.ranks) for group in dump.groups.values() if group.default and group.ranks}
    if len(sizes) == 1:
        size = sizes.pop()
        yield source.fact("world-size", 0.0, 0, {"n": size}, f"the default group of the flight recorder has {size} ranks")
    by_group: dict[tuple[str, str], list[tuple[int, Work]]] = defaultdict(list)
    for entry, work in enumerate(dump.works, 1):
        by_group[work.group].append((entry, work))
    for key in sorted(by_group):
        yield from _Part(source, dump, key, by_group[key], elements).facts(written)


def _whole(source: _Source, dump: Dump) -> Fact:
    """State that the rank's recorder was dumped, how far it reaches, and whether all of that is in the dump."""
    works = dump.works
    values: dict[str, Any] = {"version": dump.version, "entries": len(works)}
    if works:
        values["first"] = min(work.created for work in works)
        values["partial"] = True if works[-1].record - works[0].record + 1 != len(works) else None
    last = max((work.last for work in works), default=0.0)
    return source.fact("recorder", last, 0, values, f"a flight-recorder dump of {len(works)} operations")


class _Part:
    """One rank's part in one process group."""

    def __init__(self, source: _Source, dump: Dump, key: tuple[str, str], works: list[tuple[int, Work]], elements: Elements) -> None:
        self.source, self.key, self.elements = source, key, elements
        self.wrapped = bool(dump.works) and dump.works[0].record > 0
        known = dump.groups.get(key[0])
        self.ranks = known.ranks if known is not None and known.description == key[1] else None
        self.p2p = [work for _, work in works if work.p2p]
        self.numbers: dict[int, list[tuple[int, Work]]] = defaultdict(list)  # the operations of a coalesced group share a number
        for entry, work in works:
            if not work.p2p:
                self.numbers[work.number].append((entry, work))
        self.group_id = works[-1][1].group_id
        self.last_entry, self.last = works[-1]

    def facts(self, written: float | None) -> Iterator[Fact]:
        """Yield the counters of the group, and a time-out where the dump itself shows one."""
        enqueued, completed, open_at = self.enqueued(), self.completed(), self.open_at()
        entry, work = self.numbers[open_at][0] if open_at is not None else (self.last_entry, self.last)
        values = self.named() | {
            "members": members(self.ranks) if self.ranks else None,
            "enqueued": enqueued,
            "completed": completed,
            "seq": open_at,
            "p2p": self.p2p_open() or None,
        }
        values |= self.shapes(open_at if open_at is not None else enqueued)
        yield self.fact("recorder-group", work.last, entry, values, self.text(enqueued, completed, open_at))
        if open_at is not None and _expired(work, written):
            yield self.timeout(open_at, entry, work)

    def fact(self, name: str, at: float, entry: int, values: Mapping[str, Any], text: str) -> Fact:
        rank = self.source.rank
        group_rank = self.ranks.index(rank) if self.ranks and rank in self.ranks else None
        return self.source.fact(name, at, entry, values, text, group_rank)

    def named(self) -> dict[str, Any]:
        return {"group": self.key[1] or None, "group_guid": self.key[0], "group_id": self.group_id}

    def enqueued(self) -> int | None:
        """Return the number of the last collective."""
        return max(self.numbers, default=None)

    def completed(self) -> int | None:
        """Return the number of the last completed collective; a group's operations keep their order, so that those before it are too.

        The single operations of a coalesced group stay `scheduled` for ever; the group is complete when one of its entries is.
        """
        done = (number for number, works in self.numbers.items() if any(work.completed for _, work in works))
        return max(done, default=None)

    def open_at(self) -> int | None:
        """Return the number of the first collective that is not complete."""
        done = self.completed()
        return min((number for number in self.numbers if done is None or number > done), default=None)

    def p2p_open(self) -> int:
        """Count the point-to-point operations recorded after the last complete one."""
        done = max((work.record for work in self.p2p if work.completed), default=-1)
        return sum(work.record > done for work in self.p2p)

    def shapes(self, around: int | None) -> dict[str, Any]:
        """Return what ran at the numbers around one, so that ranks can be compared. The oldest number of a full ring may lack entries."""
        if around is None:
            return {}
        oldest = min(self.numbers) + self.wrapped
        first = max(oldest, around - _KEPT)
        kept = range(first, min(max(self.numbers), around + _KEPT) + 1)
        return {"from": first, "shapes": [self.shape(number) for number in kept]} if kept else {}

    def shape(self, number: int) -> str:
        works = self.numbers.get(number)
        if not works:
            return ""
        if len(works) > 1:
            return "coalesced"
        work = works[0][1]
        sizes = self.sizes(work)
        return intern(f"{work.operation}{f' of {sizes} elements' if sizes else ''}{f' ({work.dtype})' if sizes and work.dtype else ''}")

    def sizes(self, work: Work) -> str:
        count = self.elements.count
        if work.operation in _SAME_INPUT:
            given = count(work.input_sizes)
            return "" if given is None else f"{given:,}"
        if work.operation in _SAME_BOTH:
            given, made = count(work.input_sizes), count(work.output_sizes)
            return "" if given is None or made is None else f"{given:,} to {made:,}"
        return ""

    def text(self, enqueued: int | None, completed: int | None, open_at: int | None) -> str:
        name = f"{self.key[1]} ({self.key[0]})" if self.key[1] else self.key[0]
        counters = f"flight recorder, group {name}: last enqueued {_told(enqueued)}, last completed {_told(completed)}"
        if open_at is None:
            return counters + (f", from {self.last.place}" if self.last.place else "")
        work = self.numbers[open_at][0][1]
        since, place = work.created, f", from {work.place}" if work.place else ""
        begun = f" since {datetime.fromtimestamp(since, UTC).isoformat(timespec='milliseconds')}" if 0 < since < 1e11 else ""
        return f"{counters}; number {open_at} ({self.shape(open_at)}) outstanding{begun}{place}"

    def timeout(self, number: int, entry: int, work: Work) -> Fact:
        """State a time-out as the watchdog's line would, without operation and size, which log lines name in other words."""
        values = self.named() | {"seq": number, "timeout_ms": work.timeout_ms, "ran_ms": work.timeout_ms}
        if self.key[1] != "default_pg":
            del values["group"]  # many groups share a description
        at = work.created + (work.timeout_ms or 0) / 1000
        return self.fact("collective-timeout", at, entry, values, f"flight recorder: number {number} ({self.shape(number)}) timed out")


def _told(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _expired(work: Work, written: float | None) -> bool:
    """Tell whether an operation had timed out when the dump was written.

    Its watchdog lets go of an incomplete operation only then. Else the file's own time tells, if it can be the time of such a dump.
    """
    if work.retired and not work.completed:
        return True
    if written is None or not work.created or not work.timeout_ms or work.timeout_ms <= 0:
        return False
    limit = work.timeout_ms / 1000
    return _EARLIEST * limit <= written - work.created <= _LATEST * limit + _LATEST_SECS


@lru_cache(maxsize=1024)
def members(ranks: tuple[int, ...]) -> str:
    """Write global ranks in the order of the group as "0-7" or "0,8,16"; equal groups share one text."""
    parts: list[str] = []
    start = previous = ranks[0]
    for rank in [*ranks[1:], None]:
        if rank is not None and rank == previous + 1:
            previous = rank
            continue
        parts.append(str(start) if start == previous else f"{start}-{previous}")
        if rank is not None:
            start = previous = rank
    return ",".join(parts)


def ranks_of(text: str) -> tuple[int, ...]:
    """Read back what `members` wrote."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
