"""Clue: somebody outside the job ended it: a scheduler, an operator, an eviction.

Proves: a stop was ordered by the machine or scheduler that printed it.
Cannot prove: that the job was healthy until then; an earlier fault may have made somebody stop it.
Lies: launchers log SIGTERM to their workers when a sibling failed; a cancelled step is named by its first host.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import label
from firstfault.correlate.window import Window, lines_of

REASONS = {
    "time-limit": ("the time limit of the job was reached", "slurm-time-limit"),
    "cancelled": ("the job was cancelled", "slurm-cancelled"),
    "preempted": ("the job was preempted", "node-preempted"),
    "evicted": ("a pod of the job was evicted", "node-preempted"),
    "drain": ("a node of the job was drained", "node-preempted"),
    "sigterm": ("its launcher was told to stop (SIGTERM)", "node-preempted"),
    "sigint": ("it was interrupted (SIGINT)", "job-interrupted"),
    "sighup": ("its terminal was closed (SIGHUP)", "job-interrupted"),
}


def findings(window: Window) -> Iterator[Finding]:
    """Yield every stop that was ordered from outside."""
    for fact in window.facts("stopped-outside"):
        reason = str(fact.values.get("reason"))
        text, fingerprint = REASONS.get(reason, (f"stopped from outside ({reason})", "node-preempted"))
        suspect = window.who(fact)
        if suspect is not None and suspect.kind != "node":
            node = window.node_of(suspect)
            suspect = None if node is None else suspect
        whom = (suspect,) if suspect is not None else ()
        yield Finding("outside", "node-external", whom, f"{label(suspect) + ': ' if suspect else ''}{text}", lines_of(fact), fingerprint)
