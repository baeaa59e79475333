"""Find further, unrelated failures in one attempt: each is an incident of its own, never part of the first one's cascade."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect
from firstfault.correlate.window import Window

APART_SECS = 120.0  # a cascade is over within the launcher's grace periods; a watchdog's later time-outs are no faults of their own
UNCOMPARED_SECS = 60.0  # by how much clocks may differ that no shared step compares: machines of a cluster set theirs by NTP
SURVIVED_STEPS = 2  # one step may have been in flight when the fault struck
_BY_NATURE = frozenset({"own-initiating", "node-fault", "node-fault-mapped", "exit-oom-kill"})  # nothing outside the suspect causes these


def repeats(window: Window, findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return the findings of failures of one category that came after the job had survived the one before, one group each, in order.

    A job without one of its machines or ranks goes on only if it is elastic or the fault was not fatal. What then breaks another machine
    alike, well after, owes nothing to the first: two GPUs that fall off the bus hours apart are two machines to be drained, and two pages.
    Where no step shows that the job went on, the second stays part of the first's cascade.
    """
    groups: dict[str, list[list[Finding]]] = defaultdict(list)
    harms = [one for one in (_timed(window, finding) for finding in findings) if _is_lasting_harm(window, one)]
    for finding in sorted(harms, key=lambda one: (one.moment, one.suspects)):
        known = groups[window.category(finding.fingerprint or "")]
        home = next((group for group in known if not _is_repeat(window, finding, group)), None)
        if home is None:
            known.append([finding])
        else:
            home.append(finding)
    return [group for _, known in sorted(groups.items()) for group in known[1:]]


def unrelated(window: Window, findings: Sequence[Finding], named: Sequence[Suspect], fingerprint: str) -> list[list[Finding]]:
    """Return the findings of every further failure of another category than the first, one group each.

    Such a failure breaks another suspect by itself and lies apart from the first by more than a cascade takes. Without times of both
    nothing is told apart.
    """
    first = moment(findings, named)
    if first is None:
        return []
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.name in _BY_NATURE and finding.fingerprint and _another(window, finding, named, fingerprint):
            timed = _timed(window, finding)
            if _apart(timed.moment, first) and (finding.moment is not None or (timed.moment or first) > first):
                groups[finding.fingerprint].append(timed)
    return [groups[name] for name in sorted(groups)]


def moment(findings: Sequence[Finding], named: Collection[Suspect]) -> tuple[float, float] | None:
    """Return the first (time, ± error) of what is known against any of these suspects."""
    moments = [finding.moment for finding in findings if finding.moment is not None and set(finding.suspects) & set(named)]
    return min(moments, default=None)


def without(window: Window, findings: Sequence[Finding], groups: Sequence[Sequence[Finding]]) -> list[Finding]:
    """Return the findings that speak of the first failure: nothing about the suspects of others, nor about their machines since."""
    if not groups:
        return list(findings)
    theirs = [_Reach.of(window, group) for group in groups]
    kept = (
        (finding, tuple(one for one in finding.suspects if not any(it.holds(window, finding, one) for it in theirs)))
        for finding in findings
    )
    return [
        finding if len(left) == len(finding.suspects) else replace(finding, suspects=left)
        for finding, left in kept
        if left or not finding.suspects
    ]


class _Reach(NamedTuple):
    """Whom a failure broke, where and when."""

    suspects: frozenset[Suspect]
    machines: frozenset[str]
    since: tuple[float, float]

    @classmethod
    def of(cls, window: Window, group: Sequence[Finding]) -> _Reach:
        suspects = frozenset(suspect for finding in group for suspect in finding.suspects)
        return cls(suspects, frozenset(_machines(window, suspects)), moment(group, suspects) or (-math.inf, 0.0))

    def holds(self, window: Window, finding: Finding, suspect: Suspect) -> bool:
        """Tell whether what a finding says of a suspect may be of this failure."""
        if suspect in self.suspects:
            return True
        earlier = finding.moment is not None and finding.moment[0] < self.since[0] and _apart(finding.moment, self.since)
        return window.node_of(suspect) in self.machines and not earlier


def _is_lasting_harm(window: Window, finding: Finding) -> bool:
    """Tell whether a fault broke its machine or ended its process for certain, as opposed to one that was caught and lived down."""
    if finding.name not in _BY_NATURE or not finding.fingerprint or finding.moment is None or not finding.suspects:
        return False
    if finding.name != "own-initiating" or window.category(finding.fingerprint) == "hardware":
        return True
    dossier = window.dossiers.get(finding.suspects[0])
    return dossier is not None and dossier.code not in (None, 0)


def _is_repeat(window: Window, finding: Finding, group: Sequence[Finding]) -> bool:
    """Tell whether a fault is elsewhere than those of a group, apart from them, and the job had gone on after them."""
    theirs = {suspect for one in group for suspect in one.suspects}
    if set(finding.suspects) & theirs or _machines(window, finding.suspects) & _machines(window, theirs):
        return False
    if not all(_apart(finding.moment, one.moment) for one in group if one.moment is not None):
        return False
    over = max(_over(one) for one in group) + APART_SECS
    return _steps_beyond(window, theirs, over) >= SURVIVED_STEPS


def _steps_beyond(window: Window, victims: Collection[Suspect], since: float) -> int:
    """Return how many steps one process that was not hit made after a time on the common scale: the most of any."""
    return max((len(set(_steps(window, suspect, since))) for suspect in window.processes if suspect not in victims), default=0)


def _steps(window: Window, suspect: Suspect, since: float) -> Iterator[float]:
    ahead, _ = _clock(window, suspect)
    for one in window.processes[suspect].progress:
        yield from (step for step, at in one.steps if at is not None and at - ahead > since)


def _machines(window: Window, suspects: Collection[Suspect]) -> set[str]:
    return {node for one in suspects if (node := window.node_of(one))}


def _another(window: Window, finding: Finding, named: Sequence[Suspect], fingerprint: str) -> bool:
    """Tell whether a fault is of another kind than the first, and not on the machine on which that happened."""
    if set(finding.suspects) & set(named) or window.category(finding.fingerprint or "") == window.category(fingerprint):
        return False
    return not _machines(window, named) & _machines(window, finding.suspects)


def _apart(second: tuple[float, float] | None, first: tuple[float, float] | None) -> bool:
    return second is not None and first is not None and abs(second[0] - first[0]) - _error(second) - _error(first) > APART_SECS


def _timed(window: Window, finding: Finding) -> Finding:
    """Give a fault without a stamp that of its speaker's last line before it: it came no earlier, which is what a later one must show."""
    event = finding.event
    if finding.moment is not None or event is None or event.time.source != "near" or event.time.at is None or not finding.suspects:
        return finding
    ahead, error = _clock(window, finding.suspects[0])
    return replace(finding, moment=(event.time.at - ahead, event.time.precision + error))


def _clock(window: Window, suspect: Suspect) -> tuple[float, float]:
    """Return by how much a suspect's clock is ahead of the common scale, as far as that is known, and the error of that."""
    offset = window.clocks.offset(window.node_of(suspect))
    return 0.0 if math.isinf(offset.error) else offset.seconds, offset.error


def _over(finding: Finding) -> float:
    """Return when a fault had certainly happened: never, for one that has only the stamp of an earlier line."""
    if finding.moment is None or (finding.event is not None and finding.event.time.source == "near"):
        return math.inf
    return finding.moment[0] + _error(finding.moment)


def _error(moment: tuple[float, float]) -> float:
    return UNCOMPARED_SECS if math.isinf(moment[1]) else moment[1]
