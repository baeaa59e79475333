"""What an Alertmanager is told of an incident: identity labels that never change, annotations that may; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firstfault.model import Candidate, Incident, Line
from firstfault.sinks.advice import Advice, commands
from firstfault.sinks.recurrence import history, is_recurrence
from firstfault.sinks.words import (
    clip_bytes,
    collateral_phrase,
    evidence_lines,
    flat,
    iso,
    percent,
    place,
    ranges,
    ranks_phrase,
    shown,
    silent_phrase,
    some,
    suspect,
    who_failed,
)

ALERTNAME = "TrainingFailure"
EVIDENCE_BYTES = 2048
_ANNOTATION_BYTES = 2048
_LABEL_BYTES = 512


@dataclass(frozen=True, slots=True)
class Wording:
    """What the operator adds to every alert."""

    labels: Mapping[str, str] = field(default_factory=dict)  # static; never replace an identity label
    external_url: str = ""  # of our own console; runbooks and incident pages are under it
    dashboard_url: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as Alertmanager knows it; `labels` are its identity."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float  # seconds UTC
    generator_url: str = ""


def pages(incident: Incident, advice: Advice) -> bool:
    """Tell whether an incident may ever page: not history, not of a job that is heard in part, and not merely informative."""
    return not incident.historic and not incident.held and advice.severity != "info"


def alert_of(incident: Incident, advice: Advice, wording: Wording, now: float, attempts: int = 1) -> Alert:
    """Return the alert of an incident's current revision, first told at `now`; it speaks for so many attempts that failed alike."""
    known = [at for at in (incident.opened_at, incident.seen_at) if at is not None]
    base = wording.external_url.rstrip("/")
    return Alert(
        labels=labels_of(incident, advice, wording.labels),
        annotations=annotations_of(incident, advice, wording, attempts),
        starts_at=min(now, known[0]) if known else now,  # a job's clock may be ahead of ours
        generator_url=f"{base}/incidents/{incident.id}" if base else "",
    )


def labels_of(incident: Incident, advice: Advice, static: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the identity labels; they hold nothing that a later look at the same revision may change."""
    key = incident.key
    identity = {
        "alertname": ALERTNAME,
        "fingerprint": incident.fingerprint,
        "category": advice.category,
        "area": advice.area,
        "severity": advice.severity,
        "training_job": key.job,
        "namespace": key.namespace,
        "run": key.run,
        "attempt": str(key.attempt or 0),
        "incident": str(incident.ordinal),
        "revision": str(incident.revision),
    }
    return {name: clip_bytes(flat(text), _LABEL_BYTES) for name, text in (dict(static or {}) | identity).items()}


def annotations_of(incident: Incident, advice: Advice, wording: Wording, attempts: int = 1) -> dict[str, str]:
    """Return everything that may change while the alert lives; every key is always there, empty where nothing is known."""
    verdict, base = incident.verdict, wording.external_url.rstrip("/")
    texts = {
        "summary": summary_of(incident, advice),
        "description": description_of(incident, advice, attempts),
        "initiating_ranks": ranges(verdict.ranks),
        "initiating_nodes": some(verdict.nodes, 16),
        "scope": verdict.scope,
        "confidence": f"{verdict.confidence:.2f}",
        "collateral": collateral_phrase(incident),
        "missing": "\n".join(f"{one.fact}: {one.how}" for one in verdict.missing),
        "fix": advice.fix,
        "command": "\n".join(commands(advice)),
        "verify": advice.verify_command + (f" (absent for {advice.absent_for})" if advice.absent_for else ""),
        "evidence": evidence_of(evidence_lines(incident)),
        "runbook_url": f"{base}/entries/{incident.fingerprint}" if base else "",
        "dashboard_url": wording.dashboard_url,
        "incident_id": incident.id,
        "recurrence": history(incident),
    }
    return {name: clip_bytes(shown(text), _ANNOTATION_BYTES) for name, text in texts.items()}


def summary_of(incident: Incident, advice: Advice) -> str:
    """Say in one sentence what failed and who was first."""
    who, title = who_failed(incident.verdict), f"Back after its fix: {advice.title}" if is_recurrence(incident) else advice.title
    if incident.verdict.scope == "undetermined":
        return f"{title}: the logs do not show who failed first"
    return f"{title}: first fault {who} ({percent(incident.verdict.confidence)} sure)"


def description_of(incident: Incident, advice: Advice, attempts: int = 1) -> str:
    """Say in a few sentences what a person on call needs before opening anything."""
    key, verdict = incident.key, incident.verdict
    attempt = "" if key.attempt is None else f", attempt {key.attempt}"
    followed, candidates = ranks_phrase([one.rank for one in incident.collateral if one.rank is not None]), verdict.candidates
    parts = [
        f"Job {key.namespace}/{key.job}{attempt}.",
        verdict.summary or advice.summary,
        f"Only followed: {followed}." if followed else "",
        f"Fell silent: {silent_phrase(incident)}." if silent_phrase(incident) else "",
        _candidates(candidates) if verdict.scope == "undetermined" and candidates else "",
        history(incident),
        f"This replaces the earlier verdict (revision {incident.revision})." if incident.revision else "",
        f"A crash loop: {attempts} attempts of this run failed alike, this one last." if attempts > 1 else "",
    ]
    return " ".join(part for part in parts if part)


def _candidates(candidates: Iterable[Candidate]) -> str:
    return "Candidates: " + some([f"{suspect(one)} ({percent(one.probability)})" for one in candidates], 5) + "."


def evidence_of(lines: Iterable[Line], most: int = EVIDENCE_BYTES) -> str:
    """Return the decisive lines, redacted, in at most `most` bytes; long lines share what is left."""
    kept, left = [], most
    for line in lines:
        row = clip_bytes(f"{place(line)}: {flat(line.text)}", max(160, most // 3))
        size = len(row.encode()) + 1
        if size > left + 1:
            break
        kept.append(row)
        left -= size
    return "\n".join(kept)


def wire(alert: Alert, now: float, ends_after: float, resolved_at: float | None = None) -> dict[str, Any]:
    """Return the alert as `POST /api/v2/alerts` takes it.

    `startsAt` is always given: with only a future `endsAt` Alertmanager moves the start to it. While firing the latest explicit
    `endsAt` wins, so it must lie ahead; an alert is resolved by an `endsAt` that is past, never by one that is near.
    """
    ends = now + ends_after if resolved_at is None else max(alert.starts_at, min(now, resolved_at))
    body: dict[str, Any] = {
        "labels": {name: text for name, text in alert.labels.items() if text},  # empty ones are dropped there anyway
        "annotations": dict(alert.annotations),
        "startsAt": iso(alert.starts_at),
        "endsAt": iso(ends),
    }
    return body | ({"generatorURL": alert.generator_url} if alert.generator_url else {})
