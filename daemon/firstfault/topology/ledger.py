"""Decide what of a change is news: replays after a crash and people's acknowledgements must never page twice. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

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
    """Know every incident's latest state; `look_up` finds those that were known before this process."""

    def __init__(self, look_up: Callable[[str], Incident | None], acknowledged: Callable[[str], bool]) -> None:
        self._look_up = look_up
        self._acknowledged = acknowledged
        self._known: OrderedDict[str, Incident] = OrderedDict()

    def restore(self, incidents: list[Incident]) -> None:
        """Know these from before."""
        for one in incidents:
            self._known[one.id] = one

    def forget(self, names: Iterable[str]) -> None:
        """Know these no more: another correlator rules on them."""
        for name in names:
            self._known.pop(name, None)

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
        one = change.incident
        known = self._known.get(one.id) or self._look_up(one.id)
        if known is None:
            self._remember(one)
            return Ruling(change, "news", True)
        if self._is_stale(known, one):
            return Ruling(change, "nothing", False)
        # A replay sees old lines late: what counted as news then must not become history now, for that would take a page back.
        one = replace(one, historic=known.historic, seen_at=known.seen_at, recurrence=known.recurrence)
        change = replace(change, incident=one)
        if known.state == "closed" and one.state != "closed" and self._acknowledged(one.id):
            return self._muted(known, change)
        self._remember(one)
        return Ruling(change, "again" if _is_repeat(known, change) else "news", True)

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
