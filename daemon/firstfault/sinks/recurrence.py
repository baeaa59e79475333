"""Tell in words and as data that a failure was there before; pure."""

from __future__ import annotations

from typing import Any

from firstfault.model import Incident, Recurrence
from firstfault.sinks.words import flat, iso, some


def is_recurrence(incident: Incident) -> bool:
    """Tell whether the failure's fix was declared and did not hold."""
    return incident.recurrence is not None and incident.recurrence.declared_at is not None


def history(incident: Incident) -> str:
    """Say in a few sentences when it was fixed, how long it stayed away, how often it was seen and what is different now."""
    one = incident.recurrence
    if one is None:
        return ""
    return " ".join(part for part in (_declared(one), _beside(one), _seen(one), _common(one), _differs(one)) if part)


def _declared(one: Recurrence) -> str:
    if one.declared_at is None:
        return ""
    who = f" by {flat(one.declared_by)}" if one.declared_by else ""
    note = f" ({flat(one.note)})" if one.note else ""
    away = f"stayed away for {one.clean}" if one.clean else "was back before the job got anywhere"
    return f"Its fix was declared on {_when(one.declared_at)}{who}{note}; it {away} and has recurred."


def _beside(one: Recurrence) -> str:
    if not one.beside:
        return ""
    day = _when(one.beside_at)
    return f"The fix of {flat(one.beside)} was declared on {day}; its entry asks to look again at this failure, which it may have covered."


def _seen(one: Recurrence) -> str:
    if one.count < 2:
        return ""
    since = f" since {_when(one.first_at)}" if one.first_at is not None else ""
    return f"Seen {one.count} times in this job family{since}."


def _common(one: Recurrence) -> str:
    return f"Named before too: {flat(some(one.nodes))}." if one.nodes else ""


def _differs(one: Recurrence) -> str:
    changes = [f"{flat(name)} {flat(then)} -> {flat(now)}" for name, then, now in one.differs]
    return f"Different from the last time: {some(changes, 6)}." if changes else ""


def _when(at: float | None) -> str:
    text = iso(at)
    return f"{text[:16].replace('T', ' ')} UTC" if text else "an unknown day"


def recurrence_json(incident: Incident) -> dict[str, Any] | None:
    """Return it as plain data; None where nothing is known from before."""
    one = incident.recurrence
    if one is None:
        return None
    return {
        "count": one.count,
        "first_at": iso(one.first_at),
        "last_at": iso(one.last_at),
        "nodes_in_common": list(one.nodes),
        "differs": [{"name": name, "then": then, "now": now} for name, then, now in one.differs],
        "fix_declared_at": iso(one.declared_at),
        "fix_declared_by": one.declared_by,
        "note": one.note,
        "clean_for": one.clean,
        "after_fix_of": one.beside,
        "after_fix_declared_at": iso(one.beside_at),
        "summary": history(incident),
    }
