"""Clue: the process printed a fault that breaks it by itself.

Proves: this process met an error of its own (memory, assertion, corrupt data, an exception in its code).
Cannot prove: that it was the first; the same fault may stand on all ranks (see symmetry), or follow from another.
Lies: when a library wraps a lost peer in words of its own, and when a survivor retries (see progress_after).
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.clues.progress_after import went_on
from firstfault.correlate.suspects import label
from firstfault.correlate.window import Window
from firstfault.model import Event

EXCEPTION = "unclassified-exception"
_LIBRARY = ("gloo::", "c10::Dist", "c10d::", "ncclx::")  # C++ exceptions of collectives


def findings(window: Window) -> Iterator[Finding]:
    """Yield one finding for the most telling fault of every process and machine."""
    for suspect, dossier in sorted(window.dossiers.items()):
        best = best_fault(window, dossier.faults)
        if best is not None and not went_on(window, suspect, best):
            name = weight_name(best, owned=suspect.kind != "node")
            text = f"{label(suspect)} reports {title(window, best)}"
            lines, moment = best.lines[-3:], window.when(best)
            yield Finding("own-cause", name, (suspect,), text, lines, best.fingerprint, best, moment=moment)


def best_fault(window: Window, faults: list[Event]) -> Event | None:
    """Choose the event that explains most: known before unknown, initiating before either, then the first said."""
    usable = [event for event in faults if window.blames(event)]
    return min(usable, key=lambda event: (_rank(event), event.stream, event.offset), default=None)


def _rank(event: Event) -> int:
    if event.fingerprint == EXCEPTION:
        return 1
    return 0 if event.role == "initiating" else 2


def weight_name(event: Event, owned: bool = True) -> str:
    """Return the row of the table of weights that fits an event."""
    if event.fingerprint == EXCEPTION:
        return "own-hearsay" if hearsay(event) else "own-exception"
    if event.role == "either":
        return "own-either"
    return "own-initiating" if owned else "own-unowned"


def hearsay(event: Event) -> bool:
    """Tell whether an unknown exception speaks of others as often as of its speaker: a launcher's own, or the communication library's."""
    name = event.statement.exception if event.statement is not None else ""
    return event.who.agent or name.startswith(_LIBRARY) or name.rpartition(".")[2].startswith("Dist")


def title(window: Window, event: Event) -> str:
    """Name an event as its entry does; an unknown exception by its own words."""
    if event.fingerprint == EXCEPTION and event.statement is not None:
        return f"{event.statement.exception}: {event.statement.message[:120]}".strip(": ")
    return window.title(event.fingerprint)
