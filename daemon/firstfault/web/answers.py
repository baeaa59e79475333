"""Answers that handlers share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import hdrs, web

from firstfault.render.report import dump

TEXT = {hdrs.CONTENT_TYPE: "text/plain; charset=utf-8"}


def json_answer(document: object, status: int = 200) -> web.Response:
    """Answer with JSON that nobody caches without asking again."""
    headers = {hdrs.CACHE_CONTROL: "no-cache"}
    return web.Response(body=dump(document), status=status, content_type="application/json", headers=headers)


def failure(request: web.Request, status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Say what is wrong: JSON below /api, text elsewhere."""
    kept = {name: value for name, value in (headers or {}).items() if name in (hdrs.ALLOW, hdrs.WWW_AUTHENTICATE)}
    if request.path.startswith("/api/"):
        response = json_answer({"error": message}, status)
        response.headers.update(kept)
        return response
    return web.Response(text=message + "\n", status=status, headers=TEXT | kept)


def text_answer(text: str, status: int = 200) -> web.Response:
    """Answer with a line of text."""
    return web.Response(text=text + "\n", status=status, headers=TEXT)


async def json_body(request: web.Request) -> dict[str, Any]:
    """Read a JSON object; 415 and 400 say what was expected instead."""
    if request.content_type != "application/json":
        # A page of another site can send forms without asking the browser's permission, but not JSON.
        raise web.HTTPUnsupportedMediaType(text="send a JSON object with Content-Type: application/json")
    try:
        body = await request.json()
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise web.HTTPBadRequest(text="the body holds half of a surrogate pair, which is no text") from None
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="the body must be a JSON object")
    return body
