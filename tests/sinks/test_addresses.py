"""A name with several addresses is several Alertmanagers: each is served, and they come and go."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trustme
from aiohttp import web

from firstfault.clock import SystemClock
from firstfault.config.models import Alertmanager, Alerts
from firstfault.config.receiver import ClientTls
from firstfault.model import Change
from firstfault.sinks.addresses import at_address, look_up, place_of
from firstfault.sinks.alertmanager import AlertmanagerSink, from_config
from firstfault.sinks.base import Silence
from firstfault.sinks.http import Access, HttpPoster
from tests.loopback import listening
from tests.sinks.make import advise, change

NAME = "alertmanager.monitoring.svc"


class Server:
    """One Alertmanager on an address of its own; loopback has 127.0.0.0/8."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.hosts: list[str] = []
        self.port = 0

    async def take(self, request: web.Request) -> web.Response:
        self.alerts += await request.json()
        self.hosts.append(request.host)
        return web.Response()

    @asynccontextmanager
    async def listening(self, address: str, port: int = 0, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
        async with listening([web.post("/api/v2/alerts", self.take)], address, port, context) as self.port:
            yield self


class Names:
    """A name service that a test changes."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: tuple[str, ...] = addresses
        self.known = True

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        assert host == NAME
        if not self.known:
            raise OSError("Name or service not known")
        return self.addresses


class Told(Silence):
    """Remember who is served."""

    def __init__(self) -> None:
        self.served: set[str] = set()

    def alertmanager_configured(self, alertmanager: str) -> None:
        self.served.add(alertmanager)

    def alertmanager_gone(self, alertmanager: str) -> None:
        self.served.remove(alertmanager)


def sink_of(names: Names, port: int, told: Told) -> AlertmanagerSink:
    config = Alertmanager.model_validate({"targets": [{"url": f"http://{NAME}:{port}"}]})
    return from_config(config, Alerts(), "", advise, SystemClock(), told, names)


def fresh(number: int = 0) -> Change:
    return change(id=f"inc-{number}", opened_at=SystemClock().now(), settled_at=None)


async def until(check: Any, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


async def test_every_server_behind_a_name_is_told() -> None:
    """Both get the alert under the name's own host; one that appears later gets what stands, and one that is gone is let go."""
    names, told = Names("127.0.0.2", "127.0.0.3"), Told()
    async with AsyncExitStack() as stack:
        two = await stack.enter_async_context(Server().listening("127.0.0.2"))
        three = await stack.enter_async_context(Server().listening("127.0.0.3", two.port))
        four = await stack.enter_async_context(Server().listening("127.0.0.4", two.port))
        sink = sink_of(names, two.port, told)
        await sink.deliver(fresh())
        sink.start()
        await until(lambda: two.alerts and three.alerts)
        assert two.hosts[0] == f"{NAME}:{two.port}"
        assert told.served == {f"http://127.0.0.{last}:{two.port}" for last in (2, 3)}
        names.addresses = ("127.0.0.3", "127.0.0.4")
        (spread,) = sink._spreads
        await sink.turn(spread)
        await until(lambda: four.alerts)
        assert told.served == {f"http://127.0.0.{last}:{two.port}" for last in (3, 4)}
        await sink.close()


async def test_a_name_service_that_is_down_changes_nothing() -> None:
    """Who was known is still served, and a name that was never known is tried as it is."""
    names, told = Names("127.0.0.2", "127.0.0.3"), Told()
    sink = sink_of(names, 9, told)
    (spread,) = sink._spreads
    names.known = False
    await sink.turn(spread)
    assert told.served == {f"http://{NAME}:9"}
    names.known = True
    await sink.turn(spread)
    names.known = False
    await sink.turn(spread)
    assert told.served == {"http://127.0.0.2:9", "http://127.0.0.3:9"}
    names.known, names.addresses = True, ("127.0.0.3",)
    await sink.turn(spread)
    assert told.served == {f"http://{NAME}:9"}
    await sink.close(0)


async def test_a_certificate_is_checked_against_the_name(tmp_path: Any) -> None:
    """Connecting to one address of a name asks for the name's certificate."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(NAME).configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with Server().listening("127.0.0.2", 0, context) as server:
        access = Access(f"https://{NAME}:{server.port}/api/v2/alerts", tls=ClientTls(ca_file=tmp_path / "ca.pem"), address="127.0.0.2")
        poster = HttpPoster(access)
        assert (await poster.post(b"[]", {"Content-Type": "application/json"})).status == 200
        await poster.close()


async def test_localhost_is_one_server() -> None:
    """An IPv4 and an IPv6 address of one machine are not two Alertmanagers."""
    assert len(await look_up("localhost", 80)) == 1
    with pytest.raises(OSError):
        await look_up("no-such-name.invalid", 80)


def test_addresses_are_written_into_urls() -> None:
    """Metrics show which server is meant; a host that is an address needs no look-up."""
    assert at_address("https://am:9093/x", "10.0.0.1") == "https://10.0.0.1:9093/x"
    assert at_address("http://am", "fd00::1") == "http://[fd00::1]"
    assert place_of("https://am/x") == ("am", 443)
    assert place_of("http://am:1") == ("am", 1)
    assert place_of("http://10.0.0.1:9093") is None
    assert place_of("http://[fd00::1]:9093") is None
