"""Clue: whose numbers went bad first.

Proves: a rank whose own loss is NaN at a step where the others' is finite made the NaN; the reduction spreads it one step later.
Cannot prove: anything where the printed loss is already reduced over all ranks, or only one rank prints.
Lies: the rank named in an overflow message is the one that prints for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.dossier import Dossier
from firstfault.correlate.suspects import Suspect, labels
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Fact
from firstfault.rules.numbers import FEWEST, JUMP, misbehaves

NAN = "loss-nan"


SPIKE = "loss-spike"
_LASTING = 5  # steps that a jump must last: single batches jump and come back


def findings(window: Window) -> Iterator[Finding]:
    """Yield the ranks whose own numbers went bad before the others'."""
    yield from _first_nan(window)
    yield from _spikes(window)


def _spikes(window: Window) -> Iterator[Finding]:
    """A loss that jumped and stayed up: printed by one for all or alike on all it is the model's, on one of many it is that rank's."""
    told = {suspect: series(dossier) for suspect, dossier in window.processes.items()}
    jumped = {suspect: place for suspect, pairs in told.items() if (place := spike(pairs))}
    printing = [suspect for suspect, pairs in told.items() if len(pairs) > _LASTING]
    if jumped:
        suspects = tuple(sorted(jumped)) if 2 * len(jumped) <= len(printing) and len(printing) > 2 else ()
        first = min(jumped.values())
        who = labels(suspects) if suspects else "the job"
        shown = [window.processes[one].progress[-1] for one in sorted(jumped)[:2]]
        yield Finding(
            "own-cause", "loss-jumped", suspects, f"the loss of {who} jumped at step {first:g} and stayed up", lines_of(*shown), SPIKE
        )


def series(dossier: Dossier) -> list[tuple[float, float]]:
    """Return the (step, loss) pairs that were read of a process, by step."""
    pairs = {step: loss for one in dossier.progress for (step, _), loss in zip(one.steps, one.losses, strict=False) if loss is not None}
    return sorted(pairs.items())


def spike(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the first step of a jump that lasted; None where the loss kept to its usual spread."""
    values = [loss for _, loss in pairs]
    for index in range(FEWEST, len(values) - _LASTING + 1):
        before = values[max(0, index - 64) : index]
        lowest = min(before)
        if lowest > 0 and values[index] <= (1 + JUMP) * lowest:
            continue  # no jump from the lowest is one from the middle, which costs more to find
        if all(misbehaves("spike", [*before, value]) for value in values[index : index + _LASTING]):
            return pairs[index][0]
    return None


def _first_nan(window: Window) -> Iterator[Finding]:
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
        others = f"{len(printing) - len(bad)} others still print a finite one"
        text = f"at step {first:g} the loss of {labels(suspects)} is not finite while {others}"
        yield Finding("own-cause", "first-nan", suspects, text, lines_of(*bad.values()), NAN)
