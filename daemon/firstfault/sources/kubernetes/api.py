"""List and watch one kind of object through the API server; read-only, and with nothing of the objects but what is asked for."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from firstfault.errors import InputError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 500  # objects of one answer to a list
WATCH_SECS = 300  # after which the server ends a watch, and it is asked anew
LONGEST_LINE = 16 << 20  # bytes of one object; etcd holds at most 1.5 MiB by default
REQUEST_SECS = 30.0


class GoneError(Exception):
    """Say that the server no longer knows what changed since the version that was asked for (410)."""


class ApiError(Exception):
    """Say that the server refused or cannot be reached."""


@dataclass(frozen=True, slots=True)
class Access:
    """How the API server is reached."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None


def access(url: str | None, token_file: Path, ca_file: Path | None, environ: Mapping[str, str]) -> Access:
    """Return the access that is configured, else the one every pod is given; InputError where there is neither."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if url is None and not host:
        raise InputError(
            "identity.kubernetes: no API server is known, since KUBERNETES_SERVICE_HOST is not set; outside a cluster give api_server"
        )
    mounted = SERVICE_ACCOUNT / "ca.crt"
    ca = ca_file or (mounted if url is None and mounted.exists() else None)
    return Access((url or f"https://{f'[{host}]' if ':' in host else host}:{port}").rstrip("/"), token_file, ca)


class Api:
    """One session with the API server. Used on one event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None
        self._ca: tuple[int, ssl.SSLContext] | None = None

    async def close(self) -> None:
        """Give connections back."""
        if self._session is not None:
            await self._session.close()

    async def list(self, path: str, query: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        """Return all objects, and the version from which a watch goes on."""
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            asked = {**query, "limit": str(PAGE)} | ({"continue": more} if more else {})
            async with await self._get(path, asked, aiohttp.ClientTimeout(total=REQUEST_SECS)) as answer:
                body = _decoded(await answer.read())
            found += body.get("items") or []
            meta = body.get("metadata") or {}
            more = meta.get("continue") or ""
            if not more:
                return found, str(meta.get("resourceVersion") or "")

    async def watch(self, path: str, query: Mapping[str, str], version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield (ADDED | MODIFIED | DELETED | BOOKMARK, object) since a version until the server ends the watch."""
        asked = {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECS), "resourceVersion": version}
        timeout = aiohttp.ClientTimeout(total=None, connect=REQUEST_SECS, sock_read=WATCH_SECS + REQUEST_SECS)
        async with await self._get(path, asked, timeout) as answer:
            async for line in _lines(answer):
                event = _decoded(line)
                kind, found = str(event.get("type")), event.get("object")
                found = found if isinstance(found, dict) else {}
                if kind == "ERROR":
                    _refuse(int(found.get("code") or 0), str(found.get("message") or found.get("reason") or "error"), path)
                yield kind, found

    async def _get(self, path: str, query: Mapping[str, str], timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        url = self._access.url + path
        secure: ssl.SSLContext | bool = self._trust() if url.startswith("https") else True
        answer = await self._session.get(url, params=query, headers=self._headers(), timeout=timeout, ssl=secure, allow_redirects=False)
        if answer.status != 200:
            said = _message((await answer.content.read(2000)).decode("utf-8", "replace"))
            answer.close()
            _refuse(answer.status, said, path)
        return answer

    def _headers(self) -> dict[str, str]:
        token_file = self._access.token_file
        try:
            token = token_file.read_text().strip() if token_file is not None else ""
        except FileNotFoundError:
            token = ""
        except OSError as error:
            raise ApiError(f"{token_file}: cannot be read: {error.strerror or error}") from None
        return {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def _trust(self) -> ssl.SSLContext:
        """Return what certificates are checked with; the file is read again when it changed."""
        ca_file = self._access.ca_file
        try:
            changed = os.stat(ca_file).st_mtime_ns if ca_file is not None else 0
            if self._ca is None or self._ca[0] != changed:
                self._ca = (changed, ssl.create_default_context(cafile=ca_file))
        except (OSError, ssl.SSLError) as error:
            raise ApiError(f"{ca_file}: no usable certificates: {error}") from None
        return self._ca[1]


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in answer.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise ApiError(f"an object of more than {LONGEST_LINE} bytes")
        for line in whole:
            if line.strip():
                yield line


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(data)
    except ValueError:
        raise ApiError(f"the answer is no JSON: {data[:80]!r}; is api_server the API server?") from None
    if not isinstance(body, dict):
        raise ApiError(f"the answer is no object: {data[:80]!r}")
    return body


def _message(text: str) -> str:
    try:
        return str(orjson.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split())[:200]


def _refuse(status: int, said: str, path: str) -> None:
    if status == 410:
        raise GoneError(said)
    hint = ""
    if status == 401:
        hint = ": check identity.kubernetes.token_file"
    elif status == 403:
        hint = ": give the service account get, list and watch of pods and events"
    raise ApiError(f"GET {path} answered {status} ({said}){hint}")


FAULTS = (ApiError, aiohttp.ClientError, asyncio.TimeoutError, OSError)
