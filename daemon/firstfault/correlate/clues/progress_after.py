"""Clue: training went on after a symptom, so the symptom was not the end.

Proves: the process survived what it printed.
Cannot prove: that the symptom did no harm (a corrupt value may show later).
Lies: when lines were buffered and appear after the fault though they were written before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect, label
from firstfault.correlate.window import Window
from firstfault.model import Event


def findings(window: Window) -> Iterator[Finding]:
    """Yield a finding for every process that went on after its loudest fault."""
    for suspect, dossier in sorted(window.dossiers.items()):
        faults = [event for event in dossier.faults if window.blames(event)]
        if faults and all(went_on(window, suspect, event) for event in faults):
            yield Finding(
                "progress-after",
                "went-on",
                (suspect,),
                f"{label(suspect)} made progress after {window.title(faults[0].fingerprint)}",
                faults[0].lines[-1:],
            )


def went_on(window: Window, suspect: Suspect, event: Event) -> bool:
    """Tell whether the speaker of an event made progress after it: later steps in the same stream, or a good end."""
    dossier = window.dossiers[suspect]
    if dossier.code not in (None, 0):
        return False
    if any(fact.stream == event.stream and fact.offset > event.offset for fact in dossier.finishes):
        return True
    if dossier.code == 0 and dossier.finishes:
        return True
    return window.steps_after(suspect, event) >= 2
