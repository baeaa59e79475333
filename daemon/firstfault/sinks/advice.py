"""What the encyclopedia says of an incident's entry, with plain words where the entry is unknown here."""

from __future__ import annotations

from dataclasses import dataclass

from firstfault.model import Incident
from firstfault.rules.catalogue import Entry, RuleSet, Step


@dataclass(frozen=True, slots=True)
class Advice:
    """The part of an entry that people and receivers are shown."""

    fingerprint: str
    title: str
    area: str = ""
    category: str = "unknown"
    severity: str = "critical"
    summary: str = ""
    fix: str = ""  # one sentence
    steps: tuple[Step, ...] = ()
    verify_command: str = ""
    absent_for: str = ""  # "2000 steps" or "24h"
    related: tuple[str, ...] = ()


def advice_for(incident: Incident, rules: RuleSet) -> Advice:
    """Look up the incident's entry; an entry that a reload has taken away is no reason to say nothing."""
    entry = rules.entries.get(incident.fingerprint)
    if entry is None:
        return Advice(incident.fingerprint, incident.fingerprint.replace("-", " "), severity=incident.severity)
    return _of_entry(entry, incident.severity)


def _of_entry(entry: Entry, severity: str) -> Advice:
    return Advice(
        fingerprint=entry.fingerprint,
        title=entry.title,
        area=entry.area,
        category=entry.category,
        severity=severity or entry.severity,
        summary=entry.summary,
        fix=entry.fix.summary,
        steps=entry.fix.steps,
        verify_command=entry.verify.command,
        absent_for=entry.verify.absent_for,
        related=entry.related,
    )


def commands(advice: Advice) -> tuple[str, ...]:
    """Return the shell commands of the fix, in order: those that hold for every framework, else those of the first one that has any.

    What is pasted at night must not hold the commands of two frameworks.
    """
    given = [step for step in advice.steps if step.command]
    stack = "any" if any(step.stack == "any" for step in given) else next((step.stack for step in given), "any")
    return tuple(step.command for step in given if step.stack == stack)
