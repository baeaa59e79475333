"""Listen, and keep certificates and users fresh while listening."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from firstfault.errors import ConfigError, Fault, UsageError
from firstfault.web import security

FRESH_SECS = 5.0


class WebServer:
    """One listening address with its optional web configuration file."""

    def __init__(self, listen: str, config_file: Path | None, refused: Callable[[ConfigError], None]) -> None:
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._path = config_file
        self._refused = refused
        self._file = security.read_web_file(config_file) if config_file else security.WebFile()
        tls = self._file.tls_server_config
        self._context: ssl.SSLContext | None = security.tls_context(tls) if tls else None
        self._marks = security.marks_of(tls, config_file) if config_file else ()
        self.guard = security.Guard(self._file)
        self.headers = dict(self._file.http_server_config.headers)
        self.url = ""  # for commands on this machine
        self.public_url = ""  # for links that people follow from elsewhere
        self._runner: web.AppRunner | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, app: web.Application) -> None:
        """Begin to answer; UsageError names an address that is taken."""
        # A broken compressed body would end the connection without an answer; the one handler that takes such bodies unpacks them itself.
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2.0, auto_decompress=False)
        await self._runner.setup()
        listener = self._bind()
        site = web.SockSite(self._runner, listener, ssl_context=self._context)
        await site.start()
        port = listener.getsockname()[1]
        self.url = self._url(port, "127.0.0.1")
        self.public_url = self._url(port, socket.gethostname())
        if self._path:
            self._task = asyncio.create_task(self._keep_fresh(self._path), name="web configuration file")

    async def stop(self) -> None:
        """Finish running answers and stop listening."""
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._runner:
            await self._runner.cleanup()

    def refresh(self, path: Path) -> None:
        """Read the file again where it or a certificate changed; a broken one leaves the old in force."""
        marks = security.marks_of(self._file.tls_server_config, path)
        if marks == self._marks:
            return
        self._marks = marks
        try:
            file = security.read_web_file(path)
            if bool(file.tls_server_config) != bool(self._context):
                raise ConfigError([Fault(str(path), 0, "turning TLS on or off takes a restart")])
            if self._context and file.tls_server_config:
                security.tls_context(file.tls_server_config)  # try it aside before the one in use is touched
                security.load_files(self._context, file.tls_server_config)
            self.guard.use(file)
        except ConfigError as error:
            self._refused(error)
        else:
            self._file = file
            self._marks = security.marks_of(file.tls_server_config, path)

    async def _keep_fresh(self, path: Path) -> None:
        while True:
            await asyncio.sleep(FRESH_SECS)
            self.refresh(path)

    def _bind(self) -> socket.socket:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            listener.close()
            raise self._unusable(error) from None
        return listener

    def _unusable(self, error: OSError) -> UsageError:
        return UsageError(
            f"cannot listen on {self._host}:{self._port}: {error.strerror}; choose another address with --listen or web.listen"
        )

    def _url(self, port: int, everywhere: str) -> str:
        host = everywhere if self._host in ("", "0.0.0.0", "::") else self._host
        return f"{'https' if self._context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
