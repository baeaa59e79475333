"""Find how far each node's clock is off, from moments that all nodes shared, and how sure that is."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firstfault.correlate.roster import Roster
from firstfault.model import Fact, Observation, Progress, Stamp

STEP_JITTER_SECS = 0.25  # ranks of one job print a finished step within a quarter of a second or so
TIMEOUT_JITTER_SECS = 1.0  # watchdogs of one collective fire within a second: they poll
UNKNOWN = math.inf
_MOMENTS_A_NODE = 512


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a node's clock is ahead of the reference node's, in seconds, and the error of that."""

    seconds: float
    error: float


class Clocks:
    """Put stamps of different nodes on one scale, with their error."""

    def __init__(self, offsets: dict[str, Offset]) -> None:
        self._offsets = offsets

    @classmethod
    def build(cls, observations: Iterable[Observation], roster: Roster) -> Clocks:
        """Compare the times of shared moments; nodes that share none keep an unknown error."""
        moments: dict[str, dict[object, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one in observations:
            shared = _moments(one)
            if shared:
                found = moments[roster.place(one) or ""]
                for moment, at in shared:
                    if len(found) < _MOMENTS_A_NODE or moment in found:
                        found[moment].append(at)
        return cls(_offsets({node: {key: median(times) for key, times in found.items()} for node, found in moments.items()}))

    def place(self, stamp: Stamp, node: str | None) -> tuple[float, float] | None:
        """Return (seconds on the common scale, ± error); None where the stamp cannot order anything."""
        if stamp.at is None or stamp.source not in ("line", "envelope"):
            return None
        offset = self._offsets.get(node or "", Offset(0.0, UNKNOWN if len(self._offsets) > 1 else 0.0))
        return stamp.at - offset.seconds, stamp.precision + offset.error

    def offset(self, node: str | None) -> Offset:
        """Return the offset of a canonical node."""
        return self._offsets.get(node or "", Offset(0.0, UNKNOWN))


def _moments(one: Observation) -> Sequence[tuple[tuple, float]]:
    if isinstance(one, Progress):
        return [(("step", step), at) for step, at in one.steps if at is not None]
    if isinstance(one, Fact) and one.name == "collective-timeout" and one.time.at is not None and one.time.source in ("line", "envelope"):
        values = one.values
        if values.get("seq") is not None:
            group = values.get("group_guid") or values.get("group") or values.get("group_id")
            return ((("timeout", group, values["seq"], values.get("op")), one.time.at),)
    return ()


def _offsets(moments: dict[str, dict[object, float]]) -> dict[str, Offset]:
    """Measure every node against the one that shares the most moments."""
    nodes = sorted(moments)
    if not nodes:
        return {}
    known = Counter(key for found in moments.values() for key in found)
    shared = {node: sum(known[key] - 1 for key in moments[node]) for node in nodes[:64]}
    reference = max(shared, key=lambda node: (shared[node], node))
    offsets = {reference: Offset(0.0, 0.0)}
    for node in nodes:
        if node != reference:
            offsets[node] = _offset(moments[node], moments[reference])
    return offsets


def _offset(ours: dict[object, float], theirs: dict[object, float]) -> Offset:
    steps = [ours[key] - theirs[key] for key in ours.keys() & theirs.keys() if key[0] == "step"]
    if steps:
        return _robust(steps, STEP_JITTER_SECS)
    waits = [ours[key] - theirs[key] for key in ours.keys() & theirs.keys()]
    return _robust(waits, TIMEOUT_JITTER_SECS) if waits else Offset(0.0, UNKNOWN)


def median(numbers: list[float]) -> float:
    """Return the middle of some numbers; the library's checks cost more than the sorting."""
    ordered = sorted(numbers)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def deviation(numbers: Iterable[float], middle: float | None = None) -> float:
    """Return the median deviation from the middle, which is the median, scaled to the standard deviation of normal values."""
    values = list(numbers)
    usual = median(values) if middle is None else middle
    return 1.4826 * median([abs(value - usual) for value in values])


def _robust(differences: list[float], jitter: float) -> Offset:
    """Take the middle, and as error what nine in ten moments stay within.

    A median of deviations is blind to two-sided jitter and to drift.
    """
    middle = median(differences)
    deviations = sorted(abs(one - middle) for one in differences)
    return Offset(middle, jitter + deviations[min(len(deviations) - 1, int(0.9 * len(deviations)))])
