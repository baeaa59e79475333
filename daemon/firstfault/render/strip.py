"""The strip that shows each rank over time in block characters; pure, any number of ranks folded into few rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from firstfault.model import Attempt, Incident

State = Literal["healthy", "fault", "collateral", "silent"]
GLYPHS: Mapping[State, str] = {"healthy": "─", "fault": "█", "collateral": "▒", "silent": "·"}
PLAIN_GLYPHS: Mapping[State, str] = {"healthy": "-", "fault": "#", "collateral": "x", "silent": "."}
MEANING: Mapping[State, str] = {"healthy": "no fault seen", "fault": "failed first", "collateral": "followed", "silent": "fell silent"}
_ORDER: tuple[State, ...] = ("fault", "silent", "collateral", "healthy")
_MOST_RANKS = 100_000  # a garbled world size must not fill the memory
_LEAD = 0.15  # share of the strip before the first fault, so that "healthy until then" is seen


@dataclass(frozen=True, slots=True)
class Row:
    """Ranks that look the same over time."""

    ranks: tuple[int, ...]
    state: State  # in the end
    cells: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """All ranks of an incident over time."""

    rows: tuple[Row, ...]
    first: float | None  # event time of the left edge; None: no clock known
    last: float | None


def strip_of(attempt: Attempt, incident: Incident, cells: int = 40, most: int = 12) -> Strip:
    """Draw every known rank over `cells` moments in at most `most` rows."""
    ends = _ends(attempt, incident)
    first, last = _span(incident, (at for _, at in ends.values()))
    rows: dict[tuple[State, ...], list[int]] = {}
    for rank, (state, at) in ends.items():
        rows.setdefault(_cells(state, _column(at, first, last, cells), cells), []).append(rank)
    drawn = [Row(tuple(sorted(ranks)), looks[-1], looks) for looks, ranks in rows.items()]
    return Strip(_folded(sorted(drawn, key=_importance), most), first, last)


def _ends(attempt: Attempt, incident: Incident) -> dict[int, tuple[State, float | None]]:
    """Return how each rank ended and when; an initiator is never also drawn as a follower."""
    known = set(range(min(attempt.world_size or 0, _MOST_RANKS))) | set(attempt.ranks_heard)
    ends: dict[int, tuple[State, float | None]] = dict.fromkeys(known, ("healthy", None))
    ends |= dict.fromkeys(incident.silent_ranks, ("silent", incident.opened_at))
    for one in sorted((one for one in incident.collateral if one.rank is not None), key=lambda one: -(one.at or 0.0)):
        ends[one.rank] = ("collateral", one.at)  # type: ignore[index]
    ends |= dict.fromkeys(_blamed(attempt, incident), ("fault", incident.opened_at))
    return ends


def _blamed(attempt: Attempt, incident: Incident) -> Iterable[int]:
    verdict = incident.verdict
    if verdict.scope == "node" and not verdict.ranks:
        return [rank for node in verdict.nodes for rank in attempt.nodes.get(node, ())]
    if verdict.scope == "all_ranks" and not verdict.ranks:
        return attempt.ranks_heard
    return verdict.ranks if verdict.scope != "undetermined" else ()


def _span(incident: Incident, moments: Iterable[float | None]) -> tuple[float | None, float | None]:
    known = [at for at in (incident.opened_at, *moments) if at is not None]
    if not known:
        return None, None
    first, last = min(known), max(known)
    length = max(last - first, 1.0)
    return first - length * _LEAD, last + length * _LEAD


def _column(at: float | None, first: float | None, last: float | None, cells: int) -> int | None:
    """Return the cell a moment falls into; None where either is unknown."""
    if at is None or first is None or last is None:
        return None
    return min(cells - 1, max(0, int((at - first) / (last - first) * cells)))


def _cells(state: State, since: int | None, cells: int) -> tuple[State, ...]:
    start = 0 if since is None else since
    return ("healthy",) * start + (state,) * (cells - start)


def _importance(row: Row) -> tuple[int, int, int]:
    healthy = sum(1 for cell in row.cells if cell == "healthy")
    return _ORDER.index(row.state), healthy, row.ranks[0]


def _folded(rows: list[Row], most: int) -> tuple[Row, ...]:
    """Join rows of one state into their earliest, from the least important end, until few enough are left."""
    while len(rows) > most:
        at = next((i for i in range(len(rows) - 1, 0, -1) if rows[i].state == rows[i - 1].state), None)
        if at is None:
            return tuple(rows[:most])
        rows[at - 1 : at + 1] = [Row(tuple(sorted((*rows[at - 1].ranks, *rows[at].ranks))), rows[at].state, rows[at - 1].cells)]
    return tuple(rows)
