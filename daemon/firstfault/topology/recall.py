"""Remember what a failure has in common with earlier ones of its job family, and what is different this time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from firstfault.model import Attempt, Incident, Recurrence
from firstfault.store import Fix, IncidentRecord

MOST_EARLIER = 200  # incidents that are looked back at
MOST_NODES = 8
MOST_DIFFERENCES = 12
MOST_TEXT = 200  # characters of one value


def context_of(attempt: Attempt | None, incident: Incident) -> dict[str, Any]:
    """Return what an incident's attempt was made of, to be kept beside it: versions, layout, settings, size, machines."""
    made: dict[str, Any] = {"failed on": ", ".join(sorted(incident.verdict.nodes))}
    if attempt is not None:
        made |= {str(name): str(value)[:MOST_TEXT] for name, value in sorted(attempt.context.items())}
        made |= {"world size": str(attempt.world_size or ""), "nodes": ", ".join(sorted(attempt.nodes))[:MOST_TEXT]}
    return {name: value for name, value in made.items() if value}


def recurrence(
    incident: Incident,
    earlier: Sequence[IncidentRecord],
    now_made_of: Mapping[str, Any],
    then_made_of: Mapping[str, Any],
    declared: tuple[Fix, str] | None,
    beside: Fix | None = None,
) -> Recurrence | None:
    """Say what is known; None where the failure was not seen before and no fix was declared. `earlier` are the newest first.

    `beside` is the fix of another failure after which this one is to be looked at again.
    """
    if not earlier and declared is None and beside is None:
        return None
    times = [at for at in (_at(one.incident) for one in earlier) if at is not None]
    fix, clean = declared if declared else (None, "")
    return Recurrence(
        count=len(earlier) + 1,
        first_at=min(times, default=None),
        last_at=max(times, default=None),
        nodes=_in_common(incident, earlier),
        differs=differences(then_made_of, now_made_of) if then_made_of and now_made_of else (),
        declared_at=fix.declared if fix else None,
        declared_by=fix.who if fix else "",
        note=fix.note if fix else "",
        clean=clean,
        beside=beside.fingerprint if beside else "",
        beside_at=beside.declared if beside else None,
    )


def _in_common(incident: Incident, earlier: Sequence[IncidentRecord]) -> tuple[str, ...]:
    """Return the machines that are named this time and were named before, most often named first."""
    before = Counter(node for one in earlier for node in set(one.incident.verdict.nodes))
    return tuple(node for node, _ in before.most_common() if node in incident.verdict.nodes)[:MOST_NODES]


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return what changed between two attempts; what only one of them printed is no difference."""
    both = [name for name in now if name in then and then[name] != now[name]]
    return tuple((name, str(then[name])[:MOST_TEXT], str(now[name])[:MOST_TEXT]) for name in both)[:MOST_DIFFERENCES]


def _at(one: Incident) -> float | None:
    return one.opened_at if one.opened_at is not None else one.seen_at
