"""Clue: what the flight-recorder dumps of all ranks say together: who never joined, who ran something else, whose dump is absent.

Proves: that a rank had not enqueued the collective that its group waited in, and waited in no other one itself: whoever it is that others
wait for and that waits for nobody is where the chain begins.
Cannot prove: why it did not get there; and of an absent dump not whether its process could not write it or nobody fetched the file.
Lies: dumps that were asked for in a healthy job, where somebody is always a little behind: without a time-out they count for nothing.
Dumps of an earlier attempt that lie beside new ones: one whose last operation is older than all that the others hold is left out.
Waits outside the recorder (gloo, a store, RPC) are not seen: who is in one looks like the beginning of the chain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect, labels, of_rank
from firstfault.correlate.window import Window, lines_of
from firstfault.detect.flight import BY, ranks_of
from firstfault.model import Fact

MISMATCH = "collective-mismatch"
SILENT = "rank-silent"
_FEWEST = 3  # ranks to compare
_members = lru_cache(maxsize=4096)(ranks_of)


@dataclass(slots=True)
class _Group:
    """One instance of a process group, as the dumps of its ranks know it."""

    name: str
    ranks: tuple[int, ...] | None  # global; None: no dump tells
    parts: dict[int, Fact] = field(default_factory=dict)  # rank -> its counters
    waiting_at: int | None = None
    waiters: tuple[int, ...] = ()
    late: tuple[int, ...] = ()  # had not enqueued what the others wait in
    unknown: tuple[int, ...] = ()  # members without a dump

    def expected(self) -> tuple[int, ...]:
        return self.ranks or tuple(sorted(self.parts))

    def settle(self, whole: dict[int, Fact], present: set[int]) -> None:
        """Find out what is waited for, and by whom."""
        open_at = {rank: fact.values["seq"] for rank, fact in self.parts.items() if isinstance(fact.values.get("seq"), int)}
        if not open_at:
            return
        counts = Counter(open_at.values())
        self.waiting_at = min(counts, key=lambda number: (-counts[number], number))
        self.waiters = tuple(sorted(open_at))
        done = Counter({rank: fact.values["completed"] for rank, fact in self.parts.items() if "completed" in fact.values}).most_common(2)
        self.late = tuple(rank for rank in self.expected() if rank in whole and self._is_late(rank, self.waiting_at, done))
        self.unknown = tuple(rank for rank in self.expected() if rank not in present)

    def _is_late(self, rank: int, number: int, done: list[tuple[int, int]]) -> bool:
        """No collective completes without all: where one after the rank's last is complete elsewhere, its dump is older than theirs."""
        last = self._enqueued(rank)
        return last < number and all(completed <= last for other, completed in done if other != rank)

    def _enqueued(self, rank: int) -> int:
        fact = self.parts.get(rank)
        return fact.values.get("enqueued", -1) if fact is not None else -1


class _Dumps:
    """All dumps of one attempt, the newest of each rank."""

    def __init__(self, window: Window) -> None:
        newest: dict[int, Fact] = {}
        for fact in window.facts("recorder"):
            known = newest.get(fact.who.rank)
            if known is None or (fact.time.at or 0.0, fact.stream) > (known.time.at or 0.0, known.stream):
                newest[fact.who.rank] = fact
        self.present = set(newest)
        told = {rank: fact for rank, fact in newest.items() if not fact.values.get("unread")}
        begun = sorted(fact.values["first"] for fact in told.values() if "first" in fact.values)
        fresh = {rank: fact for rank, fact in told.items() if not _stale(fact, begun)}
        self.whole = {rank: fact for rank, fact in fresh.items() if not fact.values.get("partial")}
        streams = {fact.stream for fact in fresh.values()}
        self.groups = _groups([fact for fact in window.facts("recorder-group") if fact.stream in streams])
        for group in self.groups:
            group.settle(self.whole, self.present)

    def waited_for(self) -> dict[int, set[int]]:
        """Return, for every rank that is late or unheard of, who waits for it."""
        found: dict[int, set[int]] = defaultdict(set)
        for group in self.groups:
            for rank in (*group.late, *group.unknown) if group.waiters else ():
                found[rank] |= set(group.waiters) - {rank}
        return found

    def blocked(self) -> set[int]:
        """Return the ranks that themselves wait in a collective or for a peer."""
        found = {rank for group in self.groups for rank in group.waiters}
        return found | {rank for group in self.groups for rank, fact in group.parts.items() if fact.values.get("p2p")}


def _stale(fact: Fact, begun: list[float]) -> bool:
    """Tell whether the newest operation of a dump is older than the oldest of most others."""
    return len(begun) >= _FEWEST and fact.time.at is not None and "first" in fact.values and fact.time.at < begun[len(begun) // 2]


def _groups(facts: list[Fact]) -> list[_Group]:
    """Sort counters by instance: groups that share a name are told apart by their members."""
    found: dict[tuple[str, str, str], _Group] = {}
    for fact in facts:
        name, described, members = (
            str(fact.values.get("group_guid")),
            str(fact.values.get("group", "")),
            str(fact.values.get("members", "")),
        )
        group = found.setdefault((name, described, members), _Group(described or name, _members(members) if members else None))
        if fact.who.rank is not None:
            group.parts[fact.who.rank] = fact
    return [group for _, group in sorted(found.items())]


def findings(window: Window) -> Iterator[Finding]:
    """Yield what the dumps show, where anything shows that a collective timed out."""
    if not window.facts("recorder"):
        return
    dumps = _Dumps(window)
    if _timed_out(window, dumps):
        first = list(_behind(window, dumps))
        yield from first
        for group in dumps.groups:
            yield from _odd_ones(group)
        yield from _absent(window, dumps, bool(first))


def _timed_out(window: Window, dumps: _Dumps) -> bool:
    """A dump shows a time-out itself, a log says that it was caused by one, or that the very collective timed out."""
    numbers = {group.waiting_at for group in dumps.groups} - {None}
    waits = window.facts("collective-timeout")
    return bool(window.facts("dump-signal")) or any(fact.values.get("by") == BY or fact.values.get("seq") in numbers for fact in waits)


def _behind(window: Window, dumps: _Dumps) -> Iterator[Finding]:
    """Name those that others wait for and that wait for nobody, with the group in which most wait."""
    blocked = dumps.blocked()
    roots = {rank for group in dumps.groups for rank in group.late if rank not in blocked and not _waited(window, rank)}
    if not roots or 2 * len(roots) >= len(dumps.whole):
        return
    for group in sorted(dumps.groups, key=lambda one: -len(one.waiters)):
        late = tuple(of_rank(rank) for rank in group.late if rank in roots)
        roots -= set(group.late)
        if late:
            yield Finding("behind", "behind", late, _wait(group, late), _lines(group, late), SILENT)


def _wait(group: _Group, late: tuple[Suspect, ...]) -> str:
    waiters = labels([of_rank(rank) for rank in group.waiters])
    return f"by the flight recorders {waiters} wait at number {group.waiting_at} of group {group.name}; {labels(late)} never enqueued it"


def _lines(group: _Group, suspects: tuple[Suspect, ...]) -> tuple:
    usual = next((rank for rank in group.waiters if of_rank(rank) not in suspects), None)
    facts = [group.parts[rank] for rank in (*(one.rank for one in suspects[:3]), usual) if rank in group.parts]
    return lines_of(*facts)


def _waited(window: Window, rank: int) -> bool:
    """A rank whose log says that it timed out waited after all: its dump is older than that."""
    dossier = window.dossiers.get(of_rank(rank))
    return dossier is not None and any(fact.values.get("by") != BY for fact in dossier.waits)


def _odd_ones(group: _Group) -> Iterator[Finding]:
    """At the first number at which the ranks differ, those that run what few run."""
    if not group.waiters:
        return
    ran: dict[int, dict[int, str]] = defaultdict(dict)
    for rank, fact in group.parts.items():
        for number, shape in enumerate(fact.values.get("shapes", ()), fact.values.get("from", 0)):
            if shape:
                ran[number][rank] = shape
    number = next((number for number in sorted(ran) if len(set(ran[number].values())) > 1), None)
    if number is None or len(ran[number]) < _FEWEST:
        return
    (usual, how_many), (_, second) = Counter(ran[number].values()).most_common(2)
    odd = tuple(of_rank(rank) for rank in sorted(ran[number]) if ran[number][rank] != usual)
    if how_many > second and 2 * len(odd) < len(ran[number]):
        theirs = ran[number][odd[0].rank]  # type: ignore[index]
        runs = "run" if len(odd) > 1 else "runs"
        text = f"by the flight recorders {labels(odd)} {runs} {theirs} at number {number} of group {group.name}, {how_many} others {usual}"
        yield Finding("behind", "odd-one" if how_many > 2 else "odd-one-of-few", odd, text, _lines(group, odd), MISMATCH)


def _absent(window: Window, dumps: _Dumps, explained: bool) -> Iterator[Finding]:
    """All others' recorders were dumped, one rank's was not: its process could not, or its file was not fetched."""
    ranks = set(window.ranks_known) | {rank for group in dumps.groups for rank in group.ranks or ()}
    absent = sorted(ranks - dumps.present)
    if len(absent) != 1 or len(ranks) < _FEWEST or explained:
        return
    rank, suspect = absent[0], of_rank(absent[0])
    if _waited(window, rank) or any(window.who(fact) == suspect for fact in _written(window)):
        return
    scale = 1.0 if _fetched(window, rank) or rank in _only_unknown(dumps) else 0.6
    text = f"the flight recorders of all {len(dumps.present)} other ranks were dumped, that of rank {rank} was not"
    others = sorted(dumps.waited_for()[rank])[:2]
    lines = lines_of(*(part for group in dumps.groups for other in others if (part := group.parts.get(other)) is not None))
    yield Finding("silence", "dump-absent", (suspect,), text, lines, SILENT, scale=scale)


def _written(window: Window) -> list[Fact]:
    """Return the lines of ranks that say where they wrote their dump: an absent file of theirs was not fetched."""
    return [fact for fact in window.facts("setting") if fact.values.get("name") == "flight_recorder_dump"]


def _fetched(window: Window, rank: int) -> bool:
    """Tell whether files of the rank, or of others on its machine, were fetched: then its dump would have been too."""
    dossier = window.dossiers.get(of_rank(rank))
    node = window.roster.node_of(rank)
    return (dossier is not None and dossier.spoke) or (node is not None and len(window.roster.ranks_on(node)) > 1)


def _only_unknown(dumps: _Dumps) -> set[int]:
    """Return the ranks that are alone without a dump in a group in which all others wait."""
    return {
        group.unknown[0]
        for group in dumps.groups
        if len(group.unknown) == 1 and not group.late and len(group.waiters) + 1 == len(group.expected()) >= _FEWEST
    }
