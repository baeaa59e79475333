"""Find every server behind one name: a headless Service is several Alertmanagers, and each must be told."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

Lookup = Callable[[str, int], Awaitable[tuple[str, ...]]]


async def look_up(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of a name, of one family, sorted; OSError where the name is not known now.

    A server with an IPv4 and an IPv6 address is one server: where there are addresses of the older family, those of the newer are left out.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family in (socket.AF_INET, socket.AF_INET6):
        addresses = {str(place[0]) for kind, *_, place in found if kind == family}
        if addresses:
            return tuple(sorted(addresses))
    return ()


def place_of(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL; None where the host is an address already."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host, parts.port or (443 if parts.scheme == "https" else 80)
    return None


def at_address(url: str, address: str) -> str:
    """Return a URL with its host replaced by one of its addresses, for people to read."""
    parts = urlsplit(url)
    host = f"[{address}]" if ":" in address else address
    return urlunsplit(parts._replace(netloc=host if parts.port is None else f"{host}:{parts.port}"))
