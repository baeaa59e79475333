"""The one seam to a receiver over HTTP: POST a body with the credentials of its configuration, answer with status and text."""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from firstfault.config.secrets import read_secret
from firstfault.errors import DeliveryError

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from aiohttp.abc import AbstractResolver
    from pydantic import SecretStr

    from firstfault.config.receiver import BasicAuth, ClientTls, Receiver

_ANSWER_BYTES = 2048  # of a receiver's answer, for people to read


@dataclass(frozen=True, slots=True)
class Response:
    """What a receiver answered."""

    status: int
    text: str = ""
    retry_after: float | None = None  # seconds, where it asked for patience


class Poster(Protocol):
    """Carry one body to one receiver; DeliveryError when no answer came."""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Response: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one receiver; secrets in files are read anew for every request."""

    url: str
    timeout_secs: float = 10.0
    basic_auth: BasicAuth | None = None
    bearer_token: SecretStr | None = None
    bearer_token_file: Path | None = None
    tls: ClientTls | None = None
    headers: Mapping[str, SecretStr] | None = None
    header_files: Mapping[str, Path] | None = None
    address: str | None = None  # connect to this one of the host's addresses

    @classmethod
    def of(cls, receiver: Receiver, url: str) -> Access:
        """Return the access that a configuration gives to a receiver, at one of its URLs."""
        return cls(
            url,
            receiver.timeout_secs,
            receiver.basic_auth,
            receiver.bearer_token,
            receiver.bearer_token_file,
            receiver.tls,
            receiver.headers,
            receiver.header_files,
        )


def public_url(url: str) -> str:
    """Return a URL without user, password and query, fit for logs and labels."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


class HttpPoster:
    """POST with aiohttp; the session is made on first use and the TLS context again whenever one of its files changes."""

    def __init__(self, access: Access, keep_alive: bool = False) -> None:
        self._access = access
        self._keep_alive = keep_alive  # for many posts a minute that may be repeated
        self._url = _without_user(access.url)
        self._session: ClientSession | None = None
        self._tls: tuple[object, ssl.SSLContext | bool] | None = None

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Response:
        """Send one body; redirects are not followed, because they would turn a POST into a GET."""
        from aiohttp import ClientError

        session, context, secret = self._open(), self._context(), self._headers()
        try:
            async with session.post(
                self._url,
                data=body,
                headers=dict(headers) | secret,
                ssl=context,
                server_hostname=self._server_name(),
                allow_redirects=False,
            ) as answer:
                text = await answer.content.read(_ANSWER_BYTES)
                return Response(answer.status, text.decode("utf-8", "replace").strip(), _seconds(answer.headers.get("Retry-After")))
        except TimeoutError:
            raise DeliveryError(f"{public_url(self._access.url)}: no answer within {self._access.timeout_secs:g} s") from None
        except (ClientError, OSError, ValueError) as error:
            raise DeliveryError(f"{public_url(self._access.url)}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> ClientSession:
        from aiohttp import ClientSession, ClientTimeout, TCPConnector

        if self._session is None:
            address = self._access.address
            # One send a minute: a kept connection is mostly a dead one by then, and a POST on it would fail.
            self._session = ClientSession(
                connector=TCPConnector(
                    force_close=not self._keep_alive, limit=4, ttl_dns_cache=30, resolver=pinned(address) if address else None
                ),
                timeout=ClientTimeout(total=self._access.timeout_secs),
                loop=asyncio.get_running_loop(),
            )
        return self._session

    def _headers(self) -> dict[str, str]:
        access = self._access
        headers = {name: value.get_secret_value() for name, value in (access.headers or {}).items()}
        headers |= {name: read_secret(None, file) or "" for name, file in (access.header_files or {}).items()}
        token = read_secret(access.bearer_token, access.bearer_token_file)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if access.basic_auth is not None:
            password = read_secret(access.basic_auth.password, access.basic_auth.password_file)
            headers["Authorization"] = basic(access.basic_auth.username, password or "")
        elif access.url != self._url and "Authorization" not in headers:
            parts = urlsplit(access.url)
            headers["Authorization"] = basic(unquote(parts.username or ""), unquote(parts.password or ""))
        return headers

    def _server_name(self) -> str | None:
        return self._access.tls.server_name if self._access.tls else None

    def _context(self) -> ssl.SSLContext | bool:
        tls = self._access.tls
        if tls is None or not self._access.url.startswith("https:"):
            return True
        files = tuple(_mark(file) for file in (tls.ca_file, tls.cert_file, tls.key_file))
        if self._tls is None or self._tls[0] != files:
            self._tls = (files, tls_context(tls))
        return self._tls[1]


def pinned(address: str) -> AbstractResolver:
    """Return a resolver that knows one address for every name; the name stays in the request and in the check of the certificate."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Pinned(AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
            kind = socket.AF_INET6 if ":" in address else socket.AF_INET
            return [ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)]

        async def close(self) -> None:
            """Have nothing to close."""

    return Pinned()


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def basic(user: str, password: str) -> str:
    """Return the Authorization header of a name and password."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode("ascii")


def tls_context(tls: ClientTls) -> ssl.SSLContext:
    """Build the client side of TLS; DeliveryError names the file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file else None)
        if tls.cert_file:
            context.load_cert_chain(str(tls.cert_file), str(tls.key_file))
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(file) for file in (tls.ca_file, tls.cert_file, tls.key_file) if file)
        raise DeliveryError(f"{files}: unusable for TLS: {error}; a PEM certificate (and its key) is needed") from error
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _mark(file: Path | None) -> tuple[int, int, int] | None:
    """Return what changes when a file does; None where there is none."""
    try:
        stat = file.stat() if file else None
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat else None


def _seconds(text: str | None) -> float | None:
    """Read a Retry-After given in seconds; dates are not worth reading."""
    return min(300.0, float(text)) if text and text.isdigit() else None
