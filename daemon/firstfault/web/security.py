"""TLS and basic authentication in the format of Prometheus' web configuration file, read again when its files change."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, Self

from aiohttp import hdrs, web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from firstfault.config import yamlmarks
from firstfault.errors import ConfigError, Fault
from firstfault.transport.wire import PATH
from firstfault.web.keys import SITE

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
# The format names suites as Go does; OpenSSL has names of its own for them.
SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
MAX_REMEMBERED = 100
MAX_CREDENTIALS_BYTES = 1024


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TlsServer(_Section):
    """The part `tls_server_config`."""

    cert_file: Path
    key_file: Path
    client_auth_type: Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = "NoClientCert"
    client_ca_file: Path | None = None
    client_allowed_sans: list[str] = []
    min_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS13"
    cipher_suites: list[str] = []
    prefer_server_cipher_suites: bool = True

    @model_validator(mode="after")
    def _whole(self) -> Self:
        unknown = [name for name in self.cipher_suites if name not in SUITES]
        if unknown:
            raise ValueError(f"cipher suite {unknown[0]!r} is not offered; known: {', '.join(sorted(SUITES))}")
        if self.client_ca_file and self.client_auth_type == "NoClientCert":
            raise ValueError("client_ca_file needs client_auth_type: RequireAndVerifyClientCert")
        if self.client_auth_type != "NoClientCert" and not self.client_ca_file:
            raise ValueError(f"client_auth_type {self.client_auth_type} needs client_ca_file")
        if self.client_allowed_sans and self.client_auth_type != "RequireAndVerifyClientCert":
            raise ValueError("client_allowed_sans needs client_auth_type: RequireAndVerifyClientCert")
        return self


class HttpServer(_Section):
    """The part `http_server_config`; HTTP/1.1 is spoken whatever `http2` allows."""

    http2: bool = True
    headers: dict[
        Literal["Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options", "X-XSS-Protection", "Strict-Transport-Security"],
        str,
    ] = {}


class WebFile(_Section):
    """The whole file."""

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: dict[str, str] = Field({}, repr=False)

    @model_validator(mode="after")
    def _hashes(self) -> Self:
        for user, hashed in self.basic_auth_users.items():
            if not hashed.startswith(("$2a$", "$2b$", "$2y$")) or len(hashed) != 60:
                raise ValueError(f"the password of user {user!r} is no bcrypt hash; make one with: htpasswd -nBC 10 '' | tr -d ':\\n'")
        return self


def read_web_file(path: Path) -> WebFile:
    """Read and check the file; ConfigError lists every fault with its line. Paths in it are relative to it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Fault(str(path), 0, f"cannot be read: {getattr(error, 'strerror', None) or error}")]) from None
    value, marks, faults = yamlmarks.parse(text, str(path))
    if faults:
        raise ConfigError(faults)
    try:
        return WebFile.model_validate(_resolved(value, path.parent))
    except ValidationError as error:
        raise ConfigError([_fault(path, marks, item) for item in error.errors(include_url=False)]) from None


def _resolved(value: Any, folder: Path) -> Any:
    section = value.get("tls_server_config") if isinstance(value, dict) else None
    if not isinstance(section, dict):
        return value
    files = {
        name: str(folder / section[name]) for name in ("cert_file", "key_file", "client_ca_file") if isinstance(section.get(name), str)
    }
    return {**value, "tls_server_config": {**section, **files}}


def _fault(path: Path, marks: dict[yamlmarks.Path, int], item: Any) -> Fault:
    place: yamlmarks.Path = tuple(item["loc"])
    line = next((marks[place[:end]] for end in range(len(place), -1, -1) if place[:end] in marks), 0)
    name = ".".join(str(part) for part in place)
    if item["type"] == "extra_forbidden":
        return Fault(str(path), line, f"{name}: not known or not supported here; remove it")
    return Fault(str(path), line, f"{name}: {item['msg'].removeprefix('Value error, ')}".removeprefix(": "))


def tls_context(server: TlsServer) -> ssl.SSLContext:
    """Build the server side of TLS; ConfigError names the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[server.min_version], VERSIONS[server.max_version]
    if server.cipher_suites:
        context.set_ciphers(":".join(SUITES[name] for name in server.cipher_suites))
    if server.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    load_files(context, server)
    required = {"VerifyClientCertIfGiven": ssl.CERT_OPTIONAL, "RequireAndVerifyClientCert": ssl.CERT_REQUIRED}
    context.verify_mode = required.get(server.client_auth_type, ssl.CERT_NONE)
    return context


def load_files(context: ssl.SSLContext, server: TlsServer) -> None:
    """Put certificate and trusted issuers into a context; new connections use them at once."""
    for name, file in (("cert_file", server.cert_file), ("client_ca_file", server.client_ca_file)):
        try:
            if file is not None and name == "cert_file":
                context.load_cert_chain(file, server.key_file)
            elif file is not None:
                context.load_verify_locations(file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError([Fault(str(file), 0, f"{name} (with its key) cannot be used for TLS: {error}")]) from None


def marks_of(server: TlsServer | None, path: Path) -> tuple[Any, ...]:
    """Return what changes when one of the files does."""
    files = [path] + ([file for file in (server.cert_file, server.key_file, server.client_ca_file) if file] if server else [])
    return tuple(_mark(file) for file in files)


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class Guard:
    """Let in who shows a known user and password, and a client certificate of an allowed name where that is asked for."""

    def __init__(self, file: WebFile) -> None:
        self._bcrypt = _bcrypt() if file.basic_auth_users else None
        self._known: dict[bytes, bool] = {}  # keyed hashes of credentials that were checked: bcrypt is slow on purpose
        self._key = secrets.token_bytes(32)
        self.use(file)

    def use(self, file: WebFile) -> None:
        """Take users and names of a file that changed."""
        if file.basic_auth_users and self._bcrypt is None:
            self._bcrypt = _bcrypt()
        self._users = dict(file.basic_auth_users)
        tls = file.tls_server_config
        self._certificates = tls is not None and tls.client_auth_type == "RequireAndVerifyClientCert"
        self._names = frozenset(file.tls_server_config.client_allowed_sans if file.tls_server_config else ())
        self._known.clear()

    @property
    def asks(self) -> bool:
        """Tell whether everybody must show who they are."""
        return bool(self._users) or self._certificates

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Be an aiohttp middleware."""
        if self._names and not self._names & certificate_names(request):
            raise web.HTTPForbidden(text="the client certificate names nobody of client_allowed_sans")
        if lets_in(request):
            return await handler(request)
        if self._users and not await self._let_in(request.headers.get(hdrs.AUTHORIZATION, "")):
            raise web.HTTPUnauthorized(text="user and password are needed", headers={hdrs.WWW_AUTHENTICATE: 'Basic realm="firstfault"'})
        return await handler(request)

    middleware.__middleware_version__ = 1  # type: ignore[attr-defined]  # what aiohttp's decorator sets, which takes no methods

    async def _let_in(self, header: str) -> bool:
        credentials = _credentials(header)
        if credentials is None:
            return False
        digest = hmac.digest(self._key, b"\0".join(credentials), hashlib.sha256)
        if digest not in self._known:
            user, password = credentials
            known = await asyncio.to_thread(self._check, user, password)
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[digest] = known
        return self._known[digest]

    def _check(self, user: bytes, password: bytes) -> bool:
        hashed = self._users.get(user.decode("utf-8", "replace"))
        # An unknown user costs as much time as a known one, so that nobody learns names by the clock.
        stand_in = next(iter(self._users.values()))
        right = self._bcrypt.checkpw(password[:72], (hashed or stand_in).encode()) if self._bcrypt else False
        return bool(right and hashed is not None)


def _credentials(header: str) -> tuple[bytes, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > MAX_CREDENTIALS_BYTES:
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon and b"\0" not in password else None


def _bcrypt() -> Any:
    try:
        import bcrypt
    except ImportError:
        raise ConfigError([Fault("basic_auth_users", 0, "needs the package bcrypt; install it beside firstfault")]) from None
    return bcrypt


def lets_in(request: web.Request) -> bool:
    """Tell whether a matcher shows one of the tokens with which it may post what it found, and nothing else."""
    if request.path != PATH:
        return False
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    shown = token.strip().encode("utf-8", "replace")
    # All are compared, so that the time taken tells nothing.
    right = [hmac.compare_digest(shown, known.encode()) for known in request.app[SITE].events.tokens()]
    return scheme.lower() == "bearer" and any(right)


def certificate_names(request: web.Request) -> frozenset[str]:
    """Return the names of the client's certificate that TLS has verified."""
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    return frozenset(value for _, value in (certificate or {}).get("subjectAltName", ()))
