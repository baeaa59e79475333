"""POST /api/v1/events: take what matchers found, and answer when it is stored."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zstandard
from aiohttp import hdrs, web

from firstfault.transport import wire
from firstfault.web.answers import json_answer
from firstfault.web.keys import POSTS, SITE
from firstfault.web.security import lets_in
from firstfault.web.site import Door

MOST_NAMED = 5  # refused items that the answer names
MAX_WINDOW = 8 * 1024**2  # bytes that a zstd frame may ask us to remember
AGAIN_SECS = {"full": 1, "failed": 5}


@dataclass(frozen=True, slots=True)
class Read:
    """What stands in one post."""

    received: list[wire.Received]
    lines: bytes  # of them
    refused: list[tuple[int, str]]  # number of the item from 0, and why
    version: str = ""  # why the whole post must wait for an upgrade


def routes() -> list[web.RouteDef]:
    """Return the routes."""
    return [web.post(wire.PATH, take)]


async def take(request: web.Request) -> web.Response:
    """Take items, one a line; each is stored or named in the answer with its reason."""
    door = request.app[SITE].events
    if (answer := _turned_away(request, door)) is not None:
        return answer
    busy = request.app[POSTS]
    if busy.now >= door.max_posts:
        return _again(door, 429, "full", f"{busy.now} posts are being worked on; come again")
    busy.now += 1
    try:
        return await _take(request, door)
    finally:
        busy.now -= 1


async def _take(request: web.Request, door: Door) -> web.Response:
    try:
        body = await _body(request, door.max_body_bytes)
    except (web.HTTPRequestEntityTooLarge, web.HTTPBadRequest, web.HTTPUnsupportedMediaType) as error:
        door.refused("size" if error.status == 413 else "unreadable", 1, error.text or "")
        raise
    read = await asyncio.to_thread(_read, body)
    if read.version:
        door.refused("version", 1, read.version)
        return json_answer({"error": read.version, "stored": 0}, 409)
    if read.received:
        outcome = await door.bring(read.received, read.lines)
        if outcome != "stored":
            words = "as much as may wait is waiting" if outcome == "full" else "nothing can be stored now"
            return _again(door, 429 if outcome == "full" else 503, outcome, f"{words}; come again")
        door.received(Counter(one.kind for one in read.received))
    return _answer(door, read)


def _answer(door: Door, read: Read) -> web.Response:
    stored = len(read.received)
    if not read.refused:
        return json_answer({"stored": stored, "refused": 0})
    named = [{"item": number, "reason": reason[:200]} for number, reason in read.refused[:MOST_NAMED]]
    number, reason = read.refused[0]
    error = f"item {number} {reason}"[:300]
    door.refused("poison", len(read.refused), error)
    return json_answer({"error": error, "stored": stored, "refused": len(read.refused), "items": named}, 422)


def _turned_away(request: web.Request, door: Door) -> web.Response | None:
    reason = door.closed()
    if reason is not None:
        door.refused("closed", 1, "")
        return _again(None, 503, "failed", reason)
    if not (lets_in(request) or request.app[POSTS].guarded()):
        door.refused("unauthorised", 1, "")
        words = "a token of events.bearer_token_file is needed: Authorization: Bearer ..."
        if not door.tokens():
            words = "nobody may post here: set events.bearer_token_file, or users or client certificates in web.config_file"
        response = json_answer({"error": words}, 401)
        response.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="firstfault"'
        return response
    if request.content_type != wire.CONTENT_TYPE:
        door.refused("unreadable", 1, "")
        return json_answer({"error": f"send one item a line with Content-Type: {wire.CONTENT_TYPE}, not {request.content_type}"}, 415)
    return None


def _again(door: Door | None, status: int, outcome: str, words: str) -> web.Response:
    if door is not None:
        door.refused("full" if outcome == "full" else "unstored", 1, "")
    response = json_answer({"error": words, "stored": 0}, status)
    response.headers[hdrs.RETRY_AFTER] = str(AGAIN_SECS[outcome])
    return response


async def _body(request: web.Request, most: int) -> bytes:
    """Read a body bit by bit, and unpack no more of it than may be."""
    found = bytearray()
    async for part in request.content.iter_any():
        found += part
        if len(found) > most:
            raise _too_large(most)
    encoding = request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower()
    if encoding not in UNPACK:
        raise web.HTTPUnsupportedMediaType(text=f"Content-Encoding {encoding!r} is not taken; use {' or '.join(UNPACK)}")
    try:
        plain = await asyncio.to_thread(UNPACK[encoding], bytes(found), most + 1)
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise web.HTTPBadRequest(text=f"the body cannot be unpacked as {encoding}: {error}") from None
    if len(plain) > most:
        raise _too_large(most)
    return plain


def _too_large(most: int) -> web.HTTPRequestEntityTooLarge:
    return web.HTTPRequestEntityTooLarge(most, most + 1, text=f"the body has more than {most} bytes; send smaller posts")


def _gunzip(data: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    plain = unpacker.decompress(data, most)
    if not unpacker.eof and len(plain) < most:
        raise EOFError("it ends too early")
    return plain


def _unzstd(data: bytes, most: int) -> bytes:
    with zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(data) as reader:
        return reader.read(most)


UNPACK: Mapping[str, Callable[[bytes, int], bytes]] = {"gzip": _gunzip, "zstd": _unzstd, "identity": lambda data, most: data}


def _read(body: bytes) -> Read:
    received: list[wire.Received] = []
    lines: list[bytes] = []
    refused: list[tuple[int, str]] = []
    for number, line in enumerate(line for line in body.split(b"\n") if line.strip()):
        try:
            received.append(wire.read(line))
            lines.append(line)
        except wire.VersionError as error:
            return Read([], b"", [], f"item {number} {error}")
        except wire.WireError as error:
            refused.append((number, str(error)))
    return Read(received, b"\n".join(lines), refused)
