"""The console: what is broken now, one incident, and the runbook of one entry."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from aiohttp import hdrs, web
from markupsafe import Markup

from firstfault import __version__
from firstfault.model import Attempt, Incident
from firstfault.render.strip import MEANING, strip_of
from firstfault.rules.catalogue import Entry
from firstfault.rules.finding import by_text, grouped, speaks_of
from firstfault.rules.sections import sections
from firstfault.sinks import words
from firstfault.sinks.advice import advice_for
from firstfault.sinks.recurrence import history, is_recurrence
from firstfault.store import IncidentFilter, IncidentRecord, people
from firstfault.web.api import find_entry
from firstfault.web.drawing import draw
from firstfault.web.keys import SITE
from firstfault.web.site import Site

HERE = Path(__file__).parent
RECENT = 50
STRIP_CELLS = 60
LONGEST_QUERY = 400  # characters
WAYS = {"area": "area", "category": "category", "tag": "tag", "text": "error text"}
# Controls and bidirectional overrides: job names and labels may hold them as much as log lines.
UNSEEN = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0xFEFF]
)
STATIC = {"style.css": "text/css", "icon.svg": "image/svg+xml"}


def routes() -> list[web.RouteDef]:
    """Return the routes."""
    return [
        web.get("/", index),
        web.get("/incidents/{id}", incident),
        web.get("/entries", entries),
        web.get("/entries/{fingerprint}", entry),
        web.get("/static/{name}", static),
    ]


async def index(request: web.Request) -> web.Response:
    """Show what holds now, and what was lately."""
    site = request.app[SITE]
    active = await asyncio.to_thread(site.store.incidents, IncidentFilter(state="active", historic=False, limit=200))
    recent = await asyncio.to_thread(site.store.incidents, IncidentFilter(limit=RECENT + len(active)))
    names = {record.incident.id for record in active}
    past = [record for record in recent if record.incident.id not in names][:RECENT]
    fixes = await asyncio.to_thread(site.store.fixes)
    return _page(site, "index.html", active=active, past=past, fixes=fixes[-RECENT:], status=site.status(), reason=site.not_ready())


async def incident(request: web.Request) -> web.Response:
    """Show one incident: who failed first, what to do, why, and each rank over time."""
    site, name = request.app[SITE], request.match_info["id"]
    record = await asyncio.to_thread(people.find, site.store, name)
    steps = await asyncio.to_thread(site.store.changes, name)
    said = await asyncio.to_thread(site.store.feedback, name)
    attempt = _attempt_of(record.incident, await site.attempts())
    one = record.incident
    clues = sorted(one.verdict.clues, key=lambda clue: -abs(clue.weight))
    strip = strip_of(attempt, one, STRIP_CELLS, 24)
    return _page(
        site, "incident.html", record=record, one=one, steps=steps, said=said, attempt=attempt, clues=clues, strip=draw(strip),
        lines=words.evidence_lines(one), entry=site.rules().entries.get(one.fingerprint),
    )  # fmt: skip


async def entries(request: web.Request) -> web.Response:
    """List the encyclopedia by area, category, tag or error text, or only the entries that know a text."""
    site = request.app[SITE]
    rules, by, query = site.rules(), request.query.get("by", "area"), request.query.get("q", "").strip()[:LONGEST_QUERY]
    if by not in WAYS:
        raise web.HTTPBadRequest(text=f"by={by[:40]!r} is not one of {', '.join(WAYS)}")
    groups: Mapping[str, Sequence[Entry]] = {}
    texts: Sequence[tuple[str, Entry]] = ()
    if query:
        found = await asyncio.to_thread(lambda: [one for one in rules.entries.values() if speaks_of(one, query)])
        groups = {"": found} if found else {}
    elif by == "text":
        texts = [(text, rules.entries[name]) for text, name in await asyncio.to_thread(by_text, rules)]
    else:
        groups = grouped(rules, by)
    return _page(site, "entries.html", by=by, ways=WAYS, query=query, longest=LONGEST_QUERY, groups=groups, texts=texts)


async def entry(request: web.Request) -> web.Response:
    """Show the runbook of one entry."""
    site = request.app[SITE]
    found = find_entry(site.rules(), request.match_info["fingerprint"])
    hits = await asyncio.to_thread(site.store.incidents, IncidentFilter(fingerprint=found.fingerprint, limit=20))
    fixes = await asyncio.to_thread(site.store.fixes, found.fingerprint)
    return _page(site, "entry.html", entry=found, hits=hits, fixes=fixes, parts_of_page=sections(found))


async def static(request: web.Request) -> web.Response:
    """Answer with one of our own files."""
    name = request.match_info["name"]
    if name not in STATIC:
        raise web.HTTPNotFound(text=f"no file {name[:80]!r}")
    body = await asyncio.to_thread(_file, name)
    return web.Response(body=body, content_type=STATIC[name], charset="utf-8", headers={hdrs.CACHE_CONTROL: "max-age=300"})


@functools.cache
def _file(name: str) -> bytes:
    return (HERE / "static" / name).read_bytes()


def _attempt_of(one: Incident, attempts: tuple[Attempt, ...]) -> Attempt:
    """Return the incident's attempt; what the incident itself tells of it where it is no longer followed."""
    followed = next((attempt for attempt in attempts if attempt.key == one.key), None)
    if followed is not None:
        return followed
    ranks = {*one.verdict.ranks, *one.silent_ranks, *(other.rank for other in one.collateral if other.rank is not None)}
    return Attempt(one.key, None, tuple(sorted(ranks)), {}, (one,))


def _page(site: Site, template: str, **values: Any) -> web.Response:
    html = _environment().get_template(template).render(site=site, root=site.root, rules=site.rules(), version=__version__, **values)
    return web.Response(text=html, content_type="text/html", headers={hdrs.CACHE_CONTROL: "no-cache"})


@functools.cache
def _environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(HERE / "templates")
    # Autoescape is what stands between a log line and a reader's browser: it holds for every template, whatever its name.
    env = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_visible
    )
    env.filters.update(iso=_when, anchor=_anchor, shown=words.shown, percent=words.percent, ranks=lambda ranks: words.ranges(ranks, ", "))
    env.globals.update(
        who_failed=words.who_failed, advice_for=advice_for, collateral=words.collateral_phrase, place=words.place, meaning=MEANING,
        title_of=_title, suspect=words.suspect, history=history, is_recurrence=is_recurrence,
    )  # fmt: skip
    return env


def _visible(value: Any) -> Any:
    """Drop what cannot be seen from every text that a template writes."""
    return value.translate(UNSEEN) if isinstance(value, str) and not isinstance(value, Markup) else value


def _when(at: float | None) -> str:
    """Write an instant for people: UTC, to the second."""
    text = words.iso(at)
    return text[:19].replace("T", " ") + " UTC" if text else "unknown"


def _anchor(title: str) -> str:
    """Write a heading as the id that a link within the page names."""
    return title.lower().replace(" ", "-")


def _title(record: IncidentRecord, site: Site) -> str:
    return advice_for(record.incident, site.rules()).title
