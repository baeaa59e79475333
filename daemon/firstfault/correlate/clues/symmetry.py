"""Clue: the same initiating symptom stands on all ranks, or on all ranks of one machine, so no single rank is to blame.

Proves: that nothing distinguishes the ranks as far as these logs go: code, data or configuration that all share, or one machine's.
Cannot prove: that all failed by themselves where a launcher stopped some before they could print.
Lies: when one rank's error text was broadcast and printed by all (checkpoint planners do); then the text names the rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.clues.earlier import earliest
from firstfault.correlate.dossier import Dossier
from firstfault.correlate.suspects import Suspect
from firstfault.correlate.window import Window
from firstfault.model import Event
from firstfault.text.identity import read_path

_OFTEN_SHARED = frozenset({"configuration", "code", "framework", "data", "unknown"})
MOST_OF = 2 / 3  # share of the processes heard from which a fault is everybody's where the rest could not have shown it
NEARLY_ALL = 0.9  # the same where they could


@dataclass(frozen=True, slots=True)
class Symmetry:
    """Which processes show one symptom alike."""

    suspects: tuple[Suspect, ...]
    events: tuple[Event, ...]
    reach: str  # "all" | "node" | "some" | "open": nobody can tell whether the rest would have shown it
    node: str | None = None
    share: float = 1.0  # of the processes heard that could have shown it
    mute: tuple[Suspect, ...] = ()  # the rest of them: they said nothing against it, and nothing for it


def signature(event: Event) -> tuple[str, str]:
    """Return what makes two faults the same: the entry, or for an unknown exception its type."""
    return event.fingerprint, event.statement.exception if event.fingerprint == "unclassified-exception" and event.statement else ""


def find(window: Window, findings: list[Finding]) -> Symmetry | None:
    """Return the widest group of processes with one and the same fault of their own; None where fewer than two share one."""
    groups: dict[tuple[str, str], dict[Suspect, Event]] = defaultdict(dict)
    for finding in findings:
        if finding.kind == "own-cause" and finding.event is not None and finding.name != "own-either":
            groups[signature(finding.event)][finding.suspects[0]] = finding.event
    wide = [faults for faults in groups.values() if len(faults) > 1]
    if not wide:
        return _by_exit(window, findings)
    faults = max(wide, key=lambda found: (len(found), sorted(found)))
    if earliest(window, faults) is not None and not _everybody(window, set(faults)):
        return None
    return _reach(window, faults)


def _reach(window: Window, faults: dict[Suspect, Event]) -> Symmetry:
    suspects, events = tuple(sorted(faults)), tuple(faults[one] for one in sorted(faults))
    mute = mute_beside(window, suspects)
    if _everybody(window, set(suspects)):
        share = len(suspects) / (len(suspects) + len(mute))
        return Symmetry(suspects, events, _reach_of(window, events, share, mute), None, share, mute)
    nodes = {window.node_of(one) for one in suspects}
    node = next(iter(nodes)) if len(nodes) == 1 else None
    if node and len(window.nodes()) > 1 and _innocents(window, set(suspects), node):
        here = tuple(one for one in mute if window.node_of(one) == node)
        share = len(suspects) / (len(suspects) + len(here))
        if share >= MOST_OF:
            return Symmetry(suspects, events, "node", node, share, here)
    return Symmetry(suspects, events, "some", mute=mute)


def _reach_of(window: Window, events: tuple[Event, ...], share: float, mute: tuple[Suspect, ...]) -> str:
    """Say whose fault it is where nobody speaks against its being everybody's.

    Whoever had the time and the log to show it, and shows nothing, did not fail of it, unless nearly all did and a few lines are lost. Whom
    the launcher stopped within milliseconds of the first failure could not show a fault of the kind that ranks share.
    """
    if share >= NEARLY_ALL:
        return "all"
    channels = {read_path(event.lines[-1].source).channel for event in events if event.lines}
    if all(_would_show(window.dossiers[one], channels) for one in mute):
        return "some"
    if share >= MOST_OF:
        return "all"
    return "open" if window.category(events[0].fingerprint) in _OFTEN_SHARED | {"storage"} else "some"


def _would_show(dossier: Dossier, channels: Collection[str]) -> bool:
    """Tell whether a process that met the fault would be seen to: nothing ended it before, and what it writes faults to was read."""
    cut_short = bool(dossier.closings) or dossier.code not in (None, 0) or dossier.torn
    read = {read_path(line.source).channel for one in dossier.progress if (line := one.last_line) is not None}
    return not cut_short and read.issuperset(channels) if read else not cut_short


def mute_beside(window: Window, suspects: Collection[Suspect]) -> tuple[Suspect, ...]:
    """Return the processes that were heard, are told apart as the suspects are, and are none of them."""
    kinds = {one.kind for one in suspects}
    return tuple(sorted(one for one, dossier in window.processes.items() if dossier.spoke and one.kind in kinds and one not in suspects))


def _everybody(window: Window, suspects: set[Suspect]) -> bool:
    """All who could have shown the symptom did: nobody else waited, finished or fell silent."""
    others = [dossier for suspect, dossier in window.processes.items() if suspect not in suspects]
    return not any(dossier.waited or dossier.collateral or dossier.finishes for dossier in others)


def _innocents(window: Window, suspects: set[Suspect], node: str) -> bool:
    """Somebody elsewhere only followed, and nobody on this node did."""
    others = [(suspect, dossier) for suspect, dossier in window.processes.items() if suspect not in suspects]
    here = [dossier for suspect, dossier in others if window.node_of(suspect) == node and (dossier.waited or dossier.collateral)]
    return not here and any(window.node_of(suspect) != node for suspect, _ in others)


def perhaps_shared(window: Window, event: Event, team: tuple[Suspect, ...]) -> bool:
    """Tell whether others may have met the same fault, of a kind that ranks share, though the log shows it whole on one side only.

    Three traces of a fault whose telling line is missing: words that break off in a traceback or leave only the advice that follows an
    error, the same less telling symptom, and the same symptom printed more often than it has speakers.
    """
    if window.category(event.fingerprint) not in _OFTEN_SHARED:
        return False
    mine = [one for suspect in team for one in window.dossiers[suspect].events]
    vague = {one.fingerprint for one in mine if one.role == "either" and one.fingerprint != event.fingerprint}
    advised = {window.who(fact) for fact in window.facts("note") if fact.values.get("what") == "advice"}
    others = [(suspect, dossier) for suspect, dossier in window.processes.items() if suspect not in team and not dossier.waited]
    for suspect, dossier in others:
        said = dossier.torn or (suspect in advised and not dossier.events)
        if (said and not dossier.collateral) or any(one.fingerprint in vague and one.role == "either" for one in dossier.events):
            return True
    unowned = Counter(one.symptom for one in window.events if one.fingerprint == event.fingerprint and window.who(one) is None)
    return any(count > len(team) for count in unowned.values())


def _by_exit(window: Window, findings: list[Finding]) -> Symmetry | None:
    """All ranks died of one signal with no other difference."""
    crashed: dict[str, set[Suspect]] = defaultdict(set)
    for finding in findings:
        if finding.kind == "exit" and finding.weight > 0:
            crashed[finding.name].update(finding.suspects)
    for suspects in crashed.values():
        if len(suspects) > 1 and len(suspects) >= len(window.ranks_known) - 1 and _everybody(window, suspects):
            mute = mute_beside(window, suspects)
            return Symmetry(tuple(sorted(suspects)), (), "all", None, len(suspects) / (len(suspects) + len(mute)), mute)
    return None
