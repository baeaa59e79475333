"""Clue: one fault precedes all others by more than the clocks' error.

Proves: order, where both stamps are of the event itself and the clocks were compared.
Cannot prove: cause; and nothing where the stamp is only that of the nearest line.
Lies: when a clock was stepped between the shared moments and the fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.clues.own_cause import best_fault
from firstfault.correlate.suspects import Suspect, label
from firstfault.correlate.window import Window
from firstfault.model import Event


def findings(window: Window) -> Iterator[Finding]:
    """Yield the earliest fault if it is earlier beyond doubt."""
    faults = {suspect: fault for suspect, dossier in window.dossiers.items() if (fault := best_fault(window, dossier.faults)) is not None}
    first = earliest(window, faults)
    if first is not None and len(faults) > 1:
        event = faults[first]
        yield Finding(
            "earlier",
            "earlier",
            (first,),
            f"the fault of {label(first)} precedes all others beyond the clocks' error",
            event.lines[-1:],
            event.fingerprint,
            event,
        )


def earliest(window: Window, faults: dict[Suspect, Event]) -> Suspect | None:
    """Return whose fault is certainly before every other's; None where anything overlaps or has no time."""
    times = {suspect: window.when(event) for suspect, event in faults.items()}
    if len(times) < 2 or any(time is None for time in times.values()):
        return None
    order = sorted(times, key=lambda suspect: times[suspect] or (0.0, 0.0))
    (first, error), others = times[order[0]] or (0.0, 0.0), [times[one] for one in order[1:]]
    return order[0] if all(other and first + error < other[0] - other[1] for other in others) else None
