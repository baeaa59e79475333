"""The JSON API: incidents, entries, jobs, status, and what people say of them."""

from __future__ import annotations

import asyncio
import math
import re
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from firstfault.errors import UsageError
from firstfault.render.report import attempt_json, incident_json
from firstfault.rules.catalogue import Entry, RuleSet
from firstfault.rules.suggest import suggestion
from firstfault.sinks.recurrence import recurrence_json
from firstfault.sinks.words import iso, shown
from firstfault.store import ChangeRecord, Feedback, Fix, IncidentFilter, IncidentRecord, Letter, people
from firstfault.store.codec import to_plain
from firstfault.web.answers import json_answer, json_body
from firstfault.web.keys import SITE
from firstfault.web.site import Site

STATES = ("active", "open", "settled", "recovered", "closed")
FILTERS = ("state", "job", "namespace", "fingerprint", "severity", "since", "after", "historic", "limit")
MAX_RANK = 10_000_000


def routes() -> list[web.RouteDef]:
    """Return the routes."""
    return [
        web.get("/api/v1/incidents", incidents),
        web.get("/api/v1/incidents/{id}", incident),
        web.post("/api/v1/incidents/{id}/ack", acknowledge),
        web.post("/api/v1/incidents/{id}/feedback", feedback),
        web.get("/api/v1/entries", entries),
        web.get("/api/v1/entries/{fingerprint}", entry),
        web.get("/api/v1/jobs", jobs),
        web.get("/api/v1/status", status),
        web.get("/api/v1/dead-letters", dead_letters),
        web.post("/api/v1/dead-letters", revive),
        web.get("/api/v1/fixes", fixes),
        web.post("/api/v1/fixes", change_fix),
    ]


async def incidents(request: web.Request) -> web.Response:
    """Answer with incidents, newest first, page by page."""
    site = request.app[SITE]
    wanted = read_filter(request)
    records = await asyncio.to_thread(site.store.incidents, wanted)
    full = len(records) == wanted.limit and records
    after = f"{records[-1].updated!r},{records[-1].incident.id}" if full else None
    rules = site.rules()
    shown_ones = [record_json(record, rules, site) for record in records]
    return json_answer({"schema": "firstfault.incidents/1", "incidents": shown_ones, "after": after})


async def incident(request: web.Request) -> web.Response:
    """Answer with one incident, the steps of its life and what people said of it."""
    site, name = request.app[SITE], request.match_info["id"]
    record = await asyncio.to_thread(people.find, site.store, name)
    steps = await asyncio.to_thread(site.store.changes, name)
    said = await asyncio.to_thread(site.store.feedback, name)
    return json_answer(
        {
            "schema": "firstfault.incident/1",
            **record_json(record, site.rules(), site),
            "changes": [_step(step) for step in steps],
            "feedback": [_feedback(one) for one in said],
        }
    )


async def acknowledge(request: web.Request) -> web.Response:
    """Note that somebody took an incident on; it stops firing and pages nobody again."""
    site, name, body = request.app[SITE], request.match_info["id"], await json_body(request)
    who, note = _text(body, "who"), _text(body, "note")
    _only(body, "who", "note")
    await asyncio.to_thread(people.find, site.store, name)
    closed = [change.incident.id for change in await site.acknowledge(name, who, note)]
    site.told.acknowledged(name, who)
    also = [other for other in closed if other != name]
    return json_answer({"incident": name, "closed": name in closed} | ({"also": also} if also else {}))


async def feedback(request: web.Request) -> web.Response:
    """Keep what somebody says of a verdict: who failed first, or that the verdict is right."""
    site, name, body = request.app[SITE], request.match_info["id"], await json_body(request)
    _only(body, "initiating_rank", "initiating_node", "right", "who", "note")
    record = await asyncio.to_thread(people.find, site.store, name)
    given = read_feedback(record, body, site.clock.now())
    await asyncio.to_thread(people.give_feedback, site.store, given)
    site.told.feedback_given(record.incident.fingerprint, name, given.verdict)
    doubt = people.doubt(record.incident, given.rank, given.node)
    return json_answer(_feedback(given) | ({"warning": doubt} if doubt else {}), 201)


async def entries(request: web.Request) -> web.Response:
    """Answer with all entries in short."""
    rules = request.app[SITE].rules()
    return json_answer({"schema": "firstfault.entries/1", "hash": rules.hash, "entries": [_brief(one) for one in rules.entries.values()]})


async def entry(request: web.Request) -> web.Response:
    """Answer with one entry as a whole."""
    found = find_entry(request.app[SITE].rules(), request.match_info["fingerprint"])
    plain = to_plain(found)
    return json_answer({"schema": "firstfault.entry/1", **plain, **_brief(found)})


async def jobs(request: web.Request) -> web.Response:
    """Answer with every attempt of every job that is followed now."""
    site = request.app[SITE]
    rules = site.rules()
    attempts = await site.attempts()
    plain = [attempt_json(attempt, rules, site.external_url) | {"family": site.family(attempt.key.job)} for attempt in attempts]
    return json_answer({"schema": "firstfault.jobs/1", "attempts": plain})


async def status(request: web.Request) -> web.Response:
    """Answer with how the daemon itself stands."""
    return json_answer({"schema": "firstfault.status/1", **request.app[SITE].status()})


async def dead_letters(request: web.Request) -> web.Response:
    """Answer with what webhooks never took."""
    found = await asyncio.to_thread(request.app[SITE].store.dead_letters, request.query.get("sink"))
    return json_answer({"schema": "firstfault.dead-letters/1", "letters": [_letter(one) for one in found]})


async def revive(request: web.Request) -> web.Response:
    """Send dead letters again, one or all."""
    body = await json_body(request)
    _only(body, "action", "id")
    seq = body.get("id")
    if body.get("action") != "retry" or not (seq is None or (type(seq) is int and 0 <= seq < 1 << 63)):
        raise UsageError('say {"action": "retry"}, with "id": a letter\'s number for that one only')
    return json_answer({"retried": await request.app[SITE].revive(seq)})


async def fixes(request: web.Request) -> web.Response:
    """Answer with declared fixes."""
    found = await asyncio.to_thread(request.app[SITE].store.fixes, request.query.get("fingerprint"), "withdrawn" in request.query)
    rules = request.app[SITE].rules()
    return json_answer({"schema": "firstfault.fixes/1", "fixes": [fix_json(fix, rules) for fix in found]})


async def change_fix(request: web.Request) -> web.Response:
    """Declare that a fix was applied, or take that back."""
    site, body = request.app[SITE], await json_body(request)
    _only(body, "action", "fingerprint", "namespace", "job", "who", "note")
    found = find_entry(site.rules(), _text(body, "fingerprint"))
    namespace, family = _text(body, "namespace") or "default", site.family(_text(body, "job"))
    now = site.clock.now()
    match body.get("action", "declare"):
        case "declare":
            who, note = _text(body, "who"), _text(body, "note")
            doubt = await asyncio.to_thread(people.doubt_fix, site.store, found.fingerprint, namespace, family)
            fix = await asyncio.to_thread(people.declare_fix, site.store, found.fingerprint, namespace, family, who, note, now)
            await site.fixes_changed()
            site.told.fix_declared(fix.fingerprint, family, fix.declared)
            return json_answer(fix_json(fix, site.rules()) | ({"warning": doubt} if doubt else {}), 201)
        case "withdraw":
            count = await asyncio.to_thread(people.withdraw_fix, site.store, found.fingerprint, namespace, family, now)
            await site.fixes_changed()
            site.told.fix_withdrawn(found.fingerprint, family)
            return json_answer({"withdrawn": count})
        case other:
            raise UsageError(f"action {other!r} is unknown; use declare or withdraw")


def find_entry(rules: RuleSet, fingerprint: str) -> Entry:
    """Return an entry; 404 with near names where there is none."""
    found = rules.entries.get(fingerprint)
    if found is None:
        raise web.HTTPNotFound(text=f"no entry {fingerprint[:100]!r}{suggestion(fingerprint[:100], rules.entries)}")
    return found


def read_filter(request: web.Request) -> IncidentFilter:
    """Read the query of a list of incidents; 400 where a name or value is unknown."""
    query = request.query
    unknown = sorted(set(query) - set(FILTERS))
    if unknown:
        raise UsageError(f"unknown filter {unknown[0]!r}; known: {', '.join(FILTERS)}")
    state = query.get("state")
    if state is not None and state not in STATES:
        raise UsageError(f"state {state!r} is unknown; one of {', '.join(STATES)}")
    return IncidentFilter(
        state=state,
        job=query.get("job"),
        namespace=query.get("namespace"),
        fingerprint=query.get("fingerprint"),
        severity=query.get("severity"),
        since=_instant(query["since"]) if "since" in query else None,
        after=_cursor(query["after"]) if "after" in query else None,
        historic=_truth(query["historic"]) if "historic" in query else None,
        limit=_limit(query.get("limit", "100")),
    )


def read_feedback(record: IncidentRecord, body: dict[str, Any], now: float) -> Feedback:
    """Read what somebody says of a verdict; just one way of saying it is taken."""
    rank, node, right = body.get("initiating_rank"), body.get("initiating_node"), body.get("right")
    if (rank is not None) + (node is not None) + (right is not None) != 1 or right not in (None, True):
        raise UsageError("say exactly one of initiating_rank (a number), initiating_node (a name) and right (true)")
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < MAX_RANK):
        raise UsageError(f"initiating_rank {rank!r} is no global rank; give a number from 0")
    if node is not None and not isinstance(node, str):
        raise UsageError(f"initiating_node {node!r} is no name")
    verdict = "right" if right else people.judge(record.incident, rank, node)
    return Feedback(record.incident.id, now, verdict, rank, node, _text(body, "who"), _text(body, "note"))


def record_json(record: IncidentRecord, rules: RuleSet, site: Site) -> dict[str, Any]:
    """Return an incident with its job and what the store knows beside it."""
    key, ack = record.incident.key, record.ack
    return {
        "namespace": key.namespace,
        "job": key.job,
        "run": key.run,
        "attempt": key.attempt,
        "family": record.family,
        "updated_at": iso(record.updated),
        "acknowledged": None if ack is None else {"at": iso(ack.at), "who": ack.who, "note": ack.note},
        "recurrence": recurrence_json(record.incident),
        **incident_json(record.incident, rules, site.external_url),
    }


def fix_json(fix: Fix, rules: RuleSet | None = None) -> dict[str, Any]:
    """Return a declared fix as plain data, with how far its proof has come."""
    entry = rules.entries.get(fix.fingerprint) if rules else None
    return {
        "fingerprint": fix.fingerprint,
        "namespace": fix.namespace,
        "job_family": fix.family,
        "declared_at": iso(fix.declared),
        "who": fix.who,
        "note": fix.note,
        "state": fix.state,
        "withdrawn_at": iso(fix.withdrawn),
        "last_hit_at": iso(fix.last_hit),
        "verified_at": iso(fix.body.get("verified_at")),
        "recurrences": fix.body.get("recurrences", 0),
        "absent_for": entry.verify.absent_for if entry else "",
        "progress": fix.body.get("progress", ""),
        "clean_for": fix.body.get("clean_words", ""),
    }


def _letter(one: Letter) -> dict[str, Any]:
    incident = one.change.incident
    return {
        "id": one.seq,
        "sink": one.sink,
        "delivery": one.delivery,
        "at": iso(one.at),
        "given_up_at": iso(one.given_up),
        "reason": one.reason,
        "kind": one.change.kind,
        "incident": incident.id,
        "fingerprint": incident.fingerprint,
        "job": incident.key.job,
    }


def _brief(one: Entry) -> dict[str, Any]:
    names = ("fingerprint", "title", "area", "category", "severity", "maturity", "summary")
    return {name: getattr(one, name) for name in names}


def _step(step: ChangeRecord) -> dict[str, Any]:
    return {"kind": step.kind, "at": iso(step.at), "revision": step.revision, "summary": shown(step.summary)}


def _feedback(one: Feedback) -> dict[str, Any]:
    said = {"verdict": one.verdict, "initiating_rank": one.rank, "initiating_node": one.node}
    return {"at": iso(one.at), **said, "who": one.who, "note": one.note}


def _only(body: dict[str, Any], *names: str) -> None:
    unknown = sorted(set(body) - set(names))
    if unknown:
        raise UsageError(f"unknown field {unknown[0]!r}; known: {', '.join(names)}")


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {value!r}")
    return value


def _instant(text: str) -> float:
    try:
        at = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else _from_iso(text)
    except (ValueError, OverflowError):
        at = math.nan
    if not 0 <= at < 1e11:
        raise UsageError(f"{text!r} is no time; give seconds since 1970 or 2026-11-30T11:02:03Z")
    return at


def _from_iso(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _cursor(text: str) -> tuple[float, str]:
    updated, comma, name = text.partition(",")
    try:
        return float(updated), name if comma else "\uffff"
    except ValueError:
        raise UsageError(f"after={text!r} is no place in the list; use the `after` of the page before") from None


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError(f"historic={text!r}: use true or false")
    return text == "true"


def _limit(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise UsageError(f"limit={text!r}: give a number from 1 to 1000")
    return int(text)
