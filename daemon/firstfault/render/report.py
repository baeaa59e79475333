"""The diagnosis as data and as text: the JSON of `diagnose --format json` (schema firstfault.diagnosis/1) and Markdown for a ticket."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import orjson

from firstfault.model import Attempt, Candidate, Change, Clue, Collateral, Diagnosis, Incident, Line, Verdict
from firstfault.render.markdown import to_markdown
from firstfault.rules.catalogue import RuleSet, Step
from firstfault.sinks.advice import Advice, advice_for
from firstfault.sinks.words import iso, shown

SCHEMA = "firstfault.diagnosis/1"
CHANGE_SCHEMA = "firstfault.change/1"
__all__ = ["CHANGE_SCHEMA", "SCHEMA", "change_json", "dump", "incident_json", "to_json", "to_markdown"]


def dump(document: object, *, indent: bool = False) -> bytes:
    """Write a document as JSON; text that is no valid Unicode is mended instead of refused."""
    options = orjson.OPT_INDENT_2 if indent else 0
    try:
        return orjson.dumps(document, option=options)
    except TypeError:  # lone surrogates, as file names may hold them
        return orjson.dumps(_mended(document), option=options)


def to_json(diagnosis: Diagnosis, rules: RuleSet, base_url: str = "") -> dict[str, Any]:
    """Return the whole answer as plain data; `base_url` of a console turns runbooks into links."""
    inputs = diagnosis.inputs
    return {
        "schema": SCHEMA,
        "inputs": {
            "streams": inputs.streams,
            "lines": inputs.lines,
            "bytes": inputs.bytes,
            "unattributed_events": inputs.unattributed_events,
        },
        "attempts": [attempt_json(attempt, rules, base_url) for attempt in diagnosis.attempts],
    }


def attempt_json(attempt: Attempt, rules: RuleSet, base_url: str = "") -> dict[str, Any]:
    """Return one attempt with its incidents as plain data."""
    return {
        "namespace": attempt.key.namespace,
        "job": attempt.key.job,
        "run": attempt.key.run,
        "attempt": attempt.key.attempt,
        "world_size": attempt.world_size,
        "ranks_heard": list(attempt.ranks_heard),
        "nodes": {node: list(ranks) for node, ranks in attempt.nodes.items()},
        "context": {name: shown(str(value)) for name, value in attempt.context.items()},
        "incidents": [incident_json(incident, rules, base_url) for incident in attempt.incidents],
    }


def incident_json(incident: Incident, rules: RuleSet, base_url: str = "") -> dict[str, Any]:
    """Return one incident with what its entry says as plain data."""
    advice = advice_for(incident, rules)
    return {
        "id": incident.id,
        "ordinal": incident.ordinal,
        "state": incident.state,
        "revision": incident.revision,
        "opened_at": iso(incident.opened_at),
        "settled_at": iso(incident.settled_at),
        "closed_at": iso(incident.closed_at),
        "historic": incident.historic,
        **({"held": incident.held} if incident.held else {}),
        "fingerprint": incident.fingerprint,
        "title": advice.title,
        "area": advice.area,
        "category": advice.category,
        "severity": advice.severity,
        "verdict": verdict_json(incident.verdict),
        "collateral": [_collateral(one) for one in incident.collateral],
        "silent_ranks": list(incident.silent_ranks),
        "also": list(incident.also),
        "evidence": _lines(incident.evidence),
        **_advice_json(advice, base_url),
    }


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain data; local ranks and processes only where nothing better is known."""
    named: dict[str, Any] = {
        "scope": verdict.scope,
        "initiating_ranks": list(verdict.ranks),
        "initiating_nodes": list(verdict.nodes),
    }
    if verdict.local_ranks:
        named["initiating_local_ranks"] = list(verdict.local_ranks)
    if verdict.processes:
        named["initiating_processes"] = list(verdict.processes)
    return named | {
        "confidence": _number(verdict.confidence),
        "summary": shown(verdict.summary),
        "clues": [_clue(clue) for clue in verdict.clues],
        "candidates": [_candidate(one) for one in verdict.candidates],
        "missing": [{"fact": shown(one.fact), "why": shown(one.why), "how": shown(one.how)} for one in verdict.missing],
    }


def change_json(change: Change, rules: RuleSet, base_url: str = "") -> dict[str, Any]:
    """Return what a sink is told as plain data, for webhooks and JSON lines."""
    key, before = change.incident.key, change.before
    return {
        "schema": CHANGE_SCHEMA,
        "kind": change.kind,
        "at": iso(change.at),
        "namespace": key.namespace,
        "job": key.job,
        "run": key.run,
        "attempt": key.attempt,
        "incident": incident_json(change.incident, rules, base_url),
        "before": None if before is None else {"fingerprint": before.fingerprint, "verdict": verdict_json(before.verdict)},
    }


def _advice_json(advice: Advice, base_url: str) -> dict[str, Any]:
    return {
        "fix": {"summary": advice.fix, "steps": [_step(step) for step in advice.steps]},
        "verify": {"command": advice.verify_command, "absent_for": advice.absent_for},
        "related": list(advice.related),
        "runbook": runbook(advice.fingerprint, base_url),
    }


def runbook(fingerprint: str, base_url: str = "") -> str:
    """Return the link to the runbook, or the command that shows it where no console is known."""
    return f"{base_url.rstrip('/')}/entries/{fingerprint}" if base_url else f"firstfault explain {fingerprint}"


def _step(step: Step) -> dict[str, str]:
    optional = {"command": step.command, "code": step.code, "language": step.language, "stack": step.stack, "needs": step.needs}
    return {"do": step.do} | {name: text for name, text in optional.items() if text}


def _clue(clue: Clue) -> dict[str, Any]:
    return {
        "kind": clue.kind,
        "ranks": list(clue.ranks),
        "nodes": list(clue.nodes),
        "weight": _number(clue.weight),
        "text": shown(clue.text),
        "lines": _lines(clue.lines),
    }


def _candidate(one: Candidate) -> dict[str, Any]:
    who = {"rank": one.rank, "node": one.node}
    return {name: value for name, value in who.items() if value is not None} | {"probability": _number(one.probability)}


def _collateral(one: Collateral) -> dict[str, Any]:
    return {"rank": one.rank, "node": one.node, "fingerprint": one.fingerprint, "at": iso(one.at)}


def _lines(lines: Iterable[Line]) -> list[dict[str, Any]]:
    return [{"source": line.source, "number": line.number, "text": shown(line.text)} for line in lines]


def _number(value: float) -> float:
    return round(value, 4) if math.isfinite(value) else 0.0


def _mended(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_mended(name): _mended(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(one) for one in value]
    return value
