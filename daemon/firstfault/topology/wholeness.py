"""Tell whether a job lives wholly where we read: a sidecar that sees one pod of a larger job must leave paging to others; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from firstfault.model import Attempt, Change, Incident


def marked(change: Change, attempts: Callable[[str, str], Iterable[Attempt]]) -> Change:
    """Return a change whose incident says whether ranks of its attempt are known of which nothing is read here."""
    one = change.incident
    attempt = attempt_of(one, attempts(*one.key.name))
    partial = attempt is not None and not whole(attempt)
    return change if partial == one.partial else replace(change, incident=replace(one, partial=partial))


def attempt_of(incident: Incident, attempts: Iterable[Attempt]) -> Attempt | None:
    """Return the one of a job's attempts that an incident happened in."""
    return next((one for one in attempts if one.key == incident.key), None)


def whole(attempt: Attempt) -> bool:
    """Tell whether every rank is heard: all of the world, or all up to the highest one where nothing tells the world's size."""
    heard = set(attempt.ranks_heard)
    expected = attempt.world_size or max(heard, default=-1) + 1
    return heard >= set(range(expected))
