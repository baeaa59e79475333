"""Decide what of a change is news: replays after a crash and people's acknowledgements must never page twice. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from firstfault.correlate.incident import material
from firstfault.model import Change, Incident

STAGES = {"open": 0, "settled": 1, "recovered": 2, "closed": 2}
MOST_CLOSED = 10_000  # incidents remembered after they closed; older ones are looked up in the store


@dataclass(frozen=True, slots=True)
class Ruling:
    """What becomes of one change."""

    change: Change
    told: Literal["news", "again", "nothing"]  # news: every sink; again: sinks that must stay in step; nothing: the store at most
    kept: bool  # whether the store takes it


class Ledger:
    """Know every incident's latest state; `look_up` finds those that were known before this process.

    After a crash lines are read again, and in another order than they were written: a verdict reached on the way may be another than the
    one that people were told. While that goes on (`replaying`), what is said of incidents known from before is put off, and only the last
    of it counts. Revisions are numbered by what people were told, whatever number a replay gives them.
    """

    def __init__(self, look_up: Callable[[str], Incident | None], acknowledged: Callable[[str], bool]) -> None:
        self._look_up = look_up
        self._acknowledged = acknowledged
        self._known: OrderedDict[str, Incident] = OrderedDict()
        self._recalled: set[str] = set()  # known from before, and not yet compared with what this process says of them
        self._put_off: dict[str, Change] = {}
        self._ahead: dict[str, int] = {}  # by how much an incident's revision is ahead of the pipeline's
        self.replaying = False

    def caught_up(self) -> list[Change]:
        """Note that everything written before this process was read; return what was put off and is to be ruled now."""
        self.replaying = False
        late = list(self._put_off.values())
        self._put_off.clear()
        return late

    def restore(self, incidents: list[Incident]) -> None:
        """Know these from before."""
        for one in incidents:
            self._known[one.id] = one
            self._recall(one)

    def forget(self, names: Iterable[str]) -> None:
        """Know these no more: another correlator rules on them."""
        for name in names:
            self._known.pop(name, None)
            self._put_off.pop(name, None)
            self._ahead.pop(name, None)
            self._recalled.discard(name)

    def active(self) -> list[Incident]:
        """Return what is open or settled now."""
        return [one for one in self._known.values() if one.state in ("open", "settled")]

    def close(self, change: Change) -> None:
        """Note that somebody acknowledged an incident."""
        self._remember(change.incident)

    def amend(self, incident: Incident) -> None:
        """Know an incident with what was learnt of its past."""
        self._remember(incident)

    def rule(self, change: Change) -> Ruling:
        """Judge one change of the pipeline and remember what it leads to."""
        known = self._find(change.incident.id)
        if known is None:
            self._remember(change.incident)
            return Ruling(change, "news", True)
        if self.replaying and known.id in self._recalled:
            self._put_off[known.id] = change
            return Ruling(change, "nothing", False)
        change = self._numbered(known, change)
        one = change.incident
        if self._is_stale(known, one):
            return Ruling(change, "nothing", False)
        # A replay sees old lines late: what counted as news then must not become history now, for that would take a page back.
        # Nor must what was told because its whole job was heard be held back once that cannot be told any more.
        held = one.held if known.held or known.state == "open" else ""
        one = replace(one, historic=known.historic, seen_at=known.seen_at, recurrence=known.recurrence, held=held)
        change = replace(change, incident=one)
        if known.state == "closed" and one.state != "closed" and self._acknowledged(one.id):
            return self._muted(known, change)
        self._remember(one)
        return Ruling(change, "again" if _is_repeat(known, change) else "news", True)

    def _find(self, name: str) -> Incident | None:
        known = self._known.get(name)
        if known is None and (known := self._look_up(name)) is not None:
            self._recall(known)
        return known

    def _recall(self, one: Incident) -> None:
        if one.state != "open":  # of what was open nobody was told anything
            self._recalled.add(one.id)

    def _numbered(self, known: Incident, change: Change) -> Change:
        """Give a change the revision that people know, or the next one where it brings another name than they know."""
        one, before = change.incident, change.before
        if one.id in self._recalled and one.state != "open":
            self._recalled.discard(one.id)
            anew = known.state != "settled" and one.state == "settled" and one.revision > known.revision
            if not anew and not material(known, one):
                self._ahead[one.id] = known.revision - one.revision
            elif not anew and change.kind == "revised" and before is not None and not material(known, before):
                self._ahead[one.id] = known.revision - before.revision
            elif not anew and one.state == known.state == "settled":
                self._ahead[one.id] = known.revision + 1 - one.revision
                change = replace(change, kind="revised", before=known)
        ahead = self._ahead.get(one.id, 0)
        return replace(change, incident=replace(one, revision=one.revision + ahead)) if ahead else change

    def _is_stale(self, known: Incident, one: Incident) -> bool:
        """Tell whether a replay of old lines says less than is known; an incident that opens anew after it ended is no replay."""
        if one.revision != known.revision:
            return one.revision < known.revision
        return STAGES[one.state] < STAGES[known.state] and not self._acknowledged(one.id)

    def _muted(self, known: Incident, change: Change) -> Ruling:
        """Keep what is learnt after somebody took the incident on, and page nobody."""
        closed = replace(change.incident, state="closed", closed_at=known.closed_at)
        self._remember(closed)
        return Ruling(replace(change, incident=closed), "nothing", True)

    def _remember(self, one: Incident) -> None:
        self._known[one.id] = one
        self._known.move_to_end(one.id)
        if len(self._known) > MOST_CLOSED:
            oldest = next((name for name, old in self._known.items() if old.state not in ("open", "settled")), None)
            if oldest is not None:
                del self._known[oldest]


def _is_repeat(known: Incident, change: Change) -> bool:
    """Tell whether a change leads where the incident already is: the tail of a replay."""
    one = change.incident
    same = (known.state, known.revision, known.fingerprint, known.verdict.scope) == (
        one.state,
        one.revision,
        one.fingerprint,
        one.verdict.scope,
    )
    return same and change.kind != "updated"
