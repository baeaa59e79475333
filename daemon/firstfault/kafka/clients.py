"""Make consumers, producers and administrators that are logged in, and keep what they log in with fresh."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from firstfault.errors import BrokerError
from firstfault.kafka.options import Connection, Encryption, Login
from firstfault.sinks.http import basic

MAX_REQUEST_BYTES = 8 << 20
_RENEW_SHARE = 0.8  # of a token's life after which another one is asked for
_SHORTEST_LIFE_SECS = 30.0


class Token(AbstractTokenProvider):
    """Give a token out of a file, or one that a server gives for client credentials."""

    def __init__(self, login: Login, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._login, self._monotonic = login, monotonic
        self._token, self._until = "", 0.0
        self.trouble = ""  # why the last one could not be had
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """Return a token that is valid now; KafkaError says why there is none."""
        try:
            if self._login.token_file is not None:
                return _secret(None, self._login.token_file)
            async with self._lock:
                if self._monotonic() >= self._until:
                    await self._renew()
        except (KafkaError, BrokerError) as error:  # the client only logs it
            self.trouble = str(error)
            raise
        self.trouble = ""
        return self._token

    async def _renew(self) -> None:
        login = self._login
        form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
        headers = {"Authorization": basic(login.client_id, _secret(login.client_secret, login.client_secret_file))}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
                session.post(login.token_url or "", data=form, headers=headers) as answer,
            ):
                body = await answer.json(content_type=None)
                if answer.status != 200 or not isinstance(body, Mapping) or not isinstance(body.get("access_token"), str):
                    raise KafkaError(f"{login.token_url} gave no token: HTTP {answer.status}")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise KafkaError(f"{login.token_url} gave no token: {error}") from None
        life = body.get("expires_in")
        life = float(life) if isinstance(life, int | float) else 300.0
        self._token, self._until = body["access_token"], self._monotonic() + max(_SHORTEST_LIFE_SECS, life * _RENEW_SHARE)


def _secret(value: str | None, file: Path | None) -> str:
    if file is None:
        return value or ""
    try:
        return file.read_text().strip()
    except OSError as error:
        raise BrokerError(f"{file}: {error.strerror}: it holds a secret of the Kafka connection; make it readable") from None


class Access:
    """Everything that a client of one cluster is made with; `refresh` reads files again that changed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._context = _context(connection.tls) if connection.tls is not None else None
        self._token = Token(connection.login) if connection.login and connection.login.mechanism == "OAUTHBEARER" else None
        self._stamps = self._changed_at()
        self._clients: list[Any] = []

    def options(self) -> dict[str, Any]:
        """Return the arguments that all clients share."""
        connection = self.connection
        login = connection.login
        protocol = ("SASL_" if login else "") + ("SSL" if connection.tls else "PLAINTEXT")
        found: dict[str, Any] = {
            "bootstrap_servers": list(connection.bootstrap),
            "client_id": connection.client_id,
            "request_timeout_ms": int(connection.request_timeout_secs * 1000),
            "security_protocol": protocol,
            "ssl_context": self._context,
            "retry_backoff_ms": 100,
        }
        if login is None:
            return found
        found["sasl_mechanism"] = login.mechanism
        if self._token is not None:
            return found | {"sasl_oauth_token_provider": self._token}
        password = _secret(login.password, login.password_file)
        return found | {"sasl_plain_username": login.username, "sasl_plain_password": password}

    def why(self, error: BaseException) -> str:
        """Say what went wrong with a client, and why it could not log in where that is what it was."""
        trouble = f"; {self._token.trouble}" if self._token is not None and self._token.trouble else ""
        return f"{type(error).__name__}: {error}{trouble}"

    def consumer(self, **more: Any) -> AIOKafkaConsumer:
        """Return a consumer that commits nothing by itself and sees no aborted records."""
        fixed = {"enable_auto_commit": False, "isolation_level": "read_committed"}
        return self._known(AIOKafkaConsumer(**self.options(), **fixed, **more))

    def producer(self, **more: Any) -> AIOKafkaProducer:
        """Return an idempotent producer whose records are acknowledged by all in-sync replicas."""
        fixed = {"enable_idempotence": True, "acks": "all", "compression_type": "zstd", "max_request_size": MAX_REQUEST_BYTES}
        return self._known(AIOKafkaProducer(**self.options(), **(fixed | more)))

    def admin(self) -> AIOKafkaAdminClient:
        """Return an administrator."""
        return self._known(AIOKafkaAdminClient(**self.options()))

    def refresh(self) -> bool:
        """Take over certificates and passwords that changed on disk, for connections made from now on; False where none did."""
        now = self._changed_at()
        if now == self._stamps:
            return False
        tls, login = self.connection.tls, self.connection.login
        if self._context is not None and tls is not None:
            _load(self._context, tls)
        if login is not None and login.password_file is not None:
            password = _secret(None, login.password_file)
            for client in self._clients:
                inner = getattr(client, "client", None) or getattr(client, "_client", None)
                if inner is not None:
                    inner._sasl_plain_password = password  # it has no other way of changing it
        self._stamps = now
        return True

    def _known(self, client: Any) -> Any:
        self._clients.append(client)
        return client

    def forget(self, client: Any) -> None:
        """Let go of a client that was stopped."""
        with suppress(ValueError):
            self._clients.remove(client)

    def _changed_at(self) -> dict[Path, int]:
        tls, login = self.connection.tls, self.connection.login
        files = [tls.ca_file, tls.cert_file, tls.key_file] if tls else []
        files += [login.password_file] if login else []
        found = {}
        for file in files:
            with suppress(OSError):
                if file is not None:
                    found[file] = file.stat().st_mtime_ns
        return found


def _context(tls: Encryption) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = tls.check_hostname and tls.verify
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    _load(context, tls)
    return context


def _load(context: ssl.SSLContext, tls: Encryption) -> None:
    try:
        if tls.ca_file is not None:
            context.load_verify_locations(tls.ca_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(file) for file in (tls.ca_file, tls.cert_file, tls.key_file) if file)
        raise BrokerError(f"{names}: cannot be used for TLS towards Kafka: {error}; they must be PEM and belong together") from None
