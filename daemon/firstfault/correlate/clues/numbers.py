"""Clue: whose numbers went bad first.

Proves: a rank whose own loss is NaN at a step where the others' is finite made the NaN; the reduction spreads it one step later.
Cannot prove: anything where the printed loss is already reduced over all ranks, or only one rank prints.
Lies: the rank named in an overflow message is the one that prints for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect, labels
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Fact

NAN = "loss-nan"


def findings(window: Window) -> Iterator[Finding]:
    """Yield the ranks whose own loss was NaN or Inf before the others'."""
    at: dict[float, dict[Suspect, Fact]] = defaultdict(dict)
    for fact in window.facts("numeric"):
        suspect, step = window.who(fact), fact.values.get("step")
        if suspect is not None and suspect.kind != "node" and step is not None and "loss" in str(fact.values.get("name", "")):
            at[float(step)].setdefault(suspect, fact)
    if not at:
        return
    first = min(at)
    bad = at[first]
    printing = {suspect for step in at.values() for suspect in step} | {s for s, d in window.processes.items() if d.last_step is not None}
    if 0 < len(bad) < len(printing) and 2 * len(bad) <= len(printing) and len(printing) >= 2:
        suspects = tuple(sorted(bad))
        text = f"at step {first:g} the loss of {labels(suspects)} is not finite while {len(printing) - len(bad)} others still print a finite one"
        yield Finding("own-cause", "first-nan", suspects, text, lines_of(*bad.values()), NAN)
