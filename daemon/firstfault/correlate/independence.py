"""Find a second, unrelated failure in one attempt: it is an incident of its own, never part of the first one's cascade."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect
from firstfault.correlate.window import Window

APART_SECS = 120.0  # a cascade is over within the launcher's grace periods; a watchdog's later time-outs are no faults of their own
_BY_NATURE = frozenset({"own-initiating", "node-fault", "node-fault-mapped", "exit-oom-kill"})  # nothing outside the suspect causes these


def unrelated(window: Window, findings: Sequence[Finding], named: Sequence[Suspect], fingerprint: str) -> list[list[Finding]]:
    """Return the findings of every further failure, one group each.

    A further failure breaks another suspect by itself, is of another category than the first, and lies apart from it by more than a cascade
    takes. Without times of both nothing is told apart.
    """
    first = _moment(findings, named)
    if first is None:
        return []
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if (
            finding.name in _BY_NATURE
            and finding.fingerprint
            and _another(window, finding, named, fingerprint)
            and _apart(finding.moment, first)
        ):
            groups[finding.fingerprint].append(finding)
    return [groups[name] for name in sorted(groups)]


def _moment(findings: Sequence[Finding], named: Sequence[Suspect]) -> tuple[float, float] | None:
    moments = [finding.moment for finding in findings if finding.moment is not None and set(finding.suspects) & set(named)]
    return min(moments, default=None)


def _another(window: Window, finding: Finding, named: Sequence[Suspect], fingerprint: str) -> bool:
    """Tell whether a fault is of another kind than the first, and not on the machine on which that happened."""
    if set(finding.suspects) & set(named) or window.category(finding.fingerprint or "") == window.category(fingerprint):
        return False
    nodes = {window.node_of(one) for one in named} - {None}
    return not nodes & {window.node_of(one) for one in finding.suspects}


def _apart(second: tuple[float, float] | None, first: tuple[float, float]) -> bool:
    return second is not None and abs(second[0] - first[0]) - second[1] - first[1] > APART_SECS
