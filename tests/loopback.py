"""A web server inside the test's event loop."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def listening(
    routes: Iterable[web.RouteDef] = (),
    address: str = "127.0.0.1",
    port: int = 0,
    context: ssl.SSLContext | None = None,
    shutdown_secs: float = 60.0,
) -> AsyncIterator[int]:
    """Serve routes and give the port; port 0 takes a free one."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=shutdown_secs)
    await runner.setup()
    await web.TCPSite(runner, address, port, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
