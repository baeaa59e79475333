"""Make what carries a matcher's findings to correlators, and name the matcher so that nobody else's streams are taken for its own."""

from __future__ import annotations

import secrets
import socket

from firstfault.clock import Clock
from firstfault.config import Config
from firstfault.config.transport import HttpTransport
from firstfault.sinks.http import Access, HttpPoster, Poster
from firstfault.store import Store
from firstfault.telemetry import Telemetry
from firstfault.topology.streams import kafka_publisher
from firstfault.transport.base import Publisher
from firstfault.transport.http import HttpPublisher, Options
from firstfault.transport.spool import Spool
from firstfault.transport.wire import PATH

NAME = "matcher"


def make_publisher(config: Config, store: Store, clock: Clock, telemetry: Telemetry) -> Publisher | None:
    """Return what carries findings as configured; None where they are judged here."""
    if not config.publishes:
        return None
    if config.transport.http is not None:
        return _http(config.transport.http, store, clock, telemetry)
    return kafka_publisher(config, clock, telemetry)


def _http(http: HttpTransport, store: Store, clock: Clock, telemetry: Telemetry) -> HttpPublisher:
    posters: dict[str, Poster] = {one.url: HttpPoster(Access.of(one, one.url + PATH), keep_alive=True) for one in http.targets}
    options = Options(http.batch_bytes, http.batch_secs, http.retry_max_secs)
    telemetry.transport_configured("http")
    spool = Spool(store, http.spool_bytes, clock, telemetry)
    return HttpPublisher(posters, spool, options, clock, telemetry, store.spool_keys())


def origin_of(config: Config, store: Store) -> str:
    """Return the name that this matcher's streams carry; "" where nobody else's are judged with them.

    A name that was made up is remembered in the state folder, beside the positions: both are lost together.
    """
    if not config.publishes:
        return ""
    name = config.matcher.name or store.meta(NAME) or f"{socket.gethostname()}-{secrets.token_hex(4)}"
    if store.meta(NAME) != name:
        with store.transaction() as tx:
            tx.put_meta(NAME, name)
    return name
