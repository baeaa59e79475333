"""All kinds of clue, as one list that can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from firstfault.correlate.clues import (
    collectives,
    earlier,
    exits,
    nodes,
    numbers,
    outside,
    own_cause,
    peers,
    progress_after,
    recorder,
    reports,
    silence,
)
from firstfault.correlate.clues.base import Finding
from firstfault.correlate.window import Window

KINDS: tuple[Callable[[Window], Iterator[Finding]], ...] = (
    own_cause.findings,
    exits.findings,
    peers.findings,
    collectives.findings,
    recorder.findings,
    silence.findings,
    nodes.findings,
    reports.findings,
    earlier.findings,
    outside.findings,
    numbers.findings,
    progress_after.findings,
)


def gather(window: Window) -> list[Finding]:
    """Return every finding of every kind, in a fixed order."""
    return [finding for kind in KINDS for finding in kind(window)]
