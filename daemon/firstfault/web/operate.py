"""What operators and Prometheus ask: metrics, health, readiness, reload, version."""

from __future__ import annotations

import asyncio
import gzip

import prometheus_client
from aiohttp import hdrs, web
from prometheus_client.exposition import choose_encoder

from firstfault import __version__
from firstfault.web.answers import json_answer, text_answer
from firstfault.web.keys import SITE


def routes() -> list[web.RouteDef]:
    """Return the routes."""
    return [
        web.get("/metrics", metrics),
        web.get("/-/healthy", healthy),
        web.get("/-/ready", ready),
        web.post("/-/reload", reload),
        web.put("/-/reload", reload),
        web.get("/version", version),
    ]


async def metrics(request: web.Request) -> web.Response:
    """Answer a scrape: OpenMetrics with exemplars where it is asked for, else the text format."""
    encoder, content_type = choose_encoder(request.headers.get(hdrs.ACCEPT, ""))
    packed = "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, "")
    body = await asyncio.to_thread(_scrape, encoder, request.app[SITE].registry, packed)
    headers = {hdrs.CONTENT_TYPE: content_type} | ({hdrs.CONTENT_ENCODING: "gzip"} if packed else {})
    return web.Response(body=body, headers=headers)


def _scrape(encoder: object, registry: prometheus_client.CollectorRegistry, packed: bool) -> bytes:
    body: bytes = encoder(registry)  # type: ignore[operator]
    return gzip.compress(body, 1) if packed else body


async def healthy(request: web.Request) -> web.Response:
    """Answer 200 while the event loop turns."""
    return text_answer("firstfault is healthy.")


async def ready(request: web.Request) -> web.Response:
    """Answer 200 when state is restored, rules are loaded and sources run; else say what is missing."""
    reason = request.app[SITE].not_ready()
    return text_answer("firstfault is ready.") if reason is None else text_answer(f"not ready: {reason}", 503)


async def reload(request: web.Request) -> web.Response:
    """Load configuration and rules again, all or nothing."""
    site = request.app[SITE]
    if not site.lifecycle:
        return text_answer("reload over HTTP is off; set web.lifecycle: true, or send SIGHUP", 403)
    answer = await site.reload()
    if not answer.ok:
        return text_answer("refused, the running configuration and rules stay:\n" + "\n".join(answer.faults), 400)
    note = f"\nat the next start only: {', '.join(answer.kept)}" if answer.kept else ""
    return text_answer("reloaded" + note)


async def version(request: web.Request) -> web.Response:
    """Answer with the version."""
    rules = request.app[SITE].rules()
    return json_answer({"version": __version__, "entries": len(rules.entries), "rules_hash": rules.hash})
