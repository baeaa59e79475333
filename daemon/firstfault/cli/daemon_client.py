"""Reach the running daemon of a state folder, or open the folder itself where none runs."""

from __future__ import annotations

import argparse
import base64
import getpass
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from firstfault.errors import StoreError, UsageError

if TYPE_CHECKING:
    from firstfault.store import Store

TIMEOUT_SECS = 15.0


@dataclass(frozen=True, slots=True)
class Client:
    """How to speak to a daemon."""

    url: str
    user: str = ""
    password: str = ""
    ca_file: Path | None = None

    def get(self, path: str) -> Any:
        """Return what a path answers."""
        return self._send(urllib.request.Request(self.url + path))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a JSON object and return the answer."""
        data = json.dumps(body).encode()
        return self._send(urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method="POST"))

    def _send(self, request: urllib.request.Request) -> Any:
        if self.user:
            token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")
        try:
            with self._opener().open(request, timeout=TIMEOUT_SECS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise UsageError(_reason(error)) from None
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise StoreError(f"{self.url}: the daemon does not answer: {getattr(error, 'reason', error)}; name it with --url") from None

    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        # A proxy of the environment is for the outside; the daemon is near.
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))


def _reason(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            return str(json.loads(error.read(65_536))["error"])
        except (ValueError, KeyError, TypeError):
            hint = "; give --user and --password-file" if error.code == 401 else ""
            return f"{error.url}: the daemon answers {error.code} {error.reason}{hint}"


def part(text: str) -> str:
    """Return text as one part of a path."""
    return quote(text, safe="")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare how the daemon is found."""
    group = parser.add_argument_group("which firstfault")
    group.add_argument("--state-dir", type=Path, metavar="DIR", help="state folder of the daemon (default: as for run)")
    group.add_argument("--url", metavar="URL", help="address of the daemon, instead of looking it up in the state folder")
    group.add_argument("--user", metavar="NAME", default="", help="user, where the daemon asks for one")
    group.add_argument("--password-file", type=Path, metavar="FILE", help="file with the password")
    group.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates to trust for https")


@contextmanager
def connect(args: argparse.Namespace) -> Iterator[Client | Store]:
    """Yield the daemon that owns the state folder; the folder's store where no daemon runs."""
    from firstfault.store import read_beacon, state_dir

    folder = args.state_dir or Path(os.environ.get("FIRSTFAULT_STORE__PATH") or state_dir(os.environ))
    beacon = None if args.url else read_beacon(folder)
    url = args.url or (beacon.url if beacon else None)
    if url:
        yield Client(url.rstrip("/"), args.user, _password(args.password_file), args.ca_file)
        return
    if not (folder / "firstfault.db").exists():
        raise UsageError(f"{folder}: no firstfault has run with this state folder; name it with --state-dir, or a daemon with --url")
    with _opened(folder) as store:
        yield store


@contextmanager
def _opened(folder: Path) -> Iterator[Store]:
    from firstfault.store import Store
    from firstfault.topology.border import make_cover

    store = Store.open(folder, make_cover(()))
    try:
        yield store
    finally:
        store.close()


def _password(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None


def who() -> str:
    """Return who is speaking, as far as the machine knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
