"""Fixtures that run a real Alertmanager and Prometheus on loopback, and a receiver that counts notifications."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.services.plugin import missing

ROOT = Path(__file__).resolve().parents[2]


def load_script(name: str) -> ModuleType:
    """Import one of the project's scripts, which are no package."""
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


services = load_script("services")


def program(name: str) -> Path:
    """Return the path of a real program; where it is missing the test fails in CI and is skipped elsewhere."""
    try:
        return Path(services.find(name))
    except services.MissingService as error:
        missing(name, str(error))
        raise


class Receiver:
    """A webhook receiver that keeps every notification in order."""

    def __init__(self) -> None:
        self.notifications: list[dict[str, Any]] = []
        self._came = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    @property
    def firing(self) -> list[dict[str, Any]]:
        """Notifications that would page somebody."""
        return [one for one in self.notifications if one["status"] == "firing"]

    def wait_for(self, count: int, seconds: float, which: str = "notifications") -> list[dict[str, Any]]:
        """Wait until so many have come; return what has come when time is up."""
        with self._came:
            self._came.wait_for(lambda: len(getattr(self, which)) >= count, seconds)
        return list(getattr(self, which))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, body: bytes) -> None:
        with self._came:
            self.notifications.append(json.loads(body))
            self._came.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Stay quiet."""

        return Handler


StartAlertmanager = Callable[..., Any]
StartPrometheus = Callable[..., Any]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook receiver that counts notifications."""
    one = Receiver()
    yield one
    one.close()


@pytest.fixture
def start_alertmanager(tmp_path: Path, receiver: Receiver) -> Iterator[StartAlertmanager]:
    """Start a real Alertmanager that notifies the receiver; keywords override its route."""
    program("prometheus-alertmanager")
    running: list[Any] = []

    def start(port: int | None = None, **route: Any) -> Any:
        grouping = {"receiver": "hook", "group_by": ["namespace", "training_job", "fingerprint"]}
        hook = {"name": "hook", "webhook_configs": [{"url": receiver.url, "send_resolved": True}]}
        config = tmp_path / f"alertmanager-{len(running)}.yml"
        config.write_text(yaml.safe_dump({"route": grouping | route, "receivers": [hook]}))
        server = services.alertmanager(tmp_path, config, port).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def start_prometheus(tmp_path: Path) -> Iterator[StartPrometheus]:
    """Start a real Prometheus from a configuration given as data."""
    program("prometheus")
    running: list[Any] = []

    def start(config: dict[str, Any]) -> Any:
        file = tmp_path / f"prometheus-{len(running)}.yml"
        file.write_text(yaml.safe_dump(config))
        server = services.prometheus(tmp_path, file).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


def alerts_of(url: str) -> list[dict[str, Any]]:
    """Return the active alerts of an Alertmanager."""
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found
