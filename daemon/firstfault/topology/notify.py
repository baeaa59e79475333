"""Tell systemd how the service stands, where it listens for that."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def sd_notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as READY=1 to $NOTIFY_SOCKET; False where there is none or nobody takes it."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.connect("\0" + address[1:] if address[0] == "@" else address)
            channel.sendall(state.encode())
        except OSError:
            return False
    return True
