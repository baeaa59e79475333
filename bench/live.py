"""Run the real daemon as a subprocess over a folder of its own, and receive what it sends."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.common import OUT, ROOT

READY_SECS = 120.0  # the very first start compiles the patterns
STOP_SECS = 30.0


def environment(home: Path, caches: Path) -> dict[str, str]:
    """Return the environment of an ordinary installation: bytecode is kept, state and caches lie where we can remove them."""
    left_out = ("PYTHONDONTWRITEBYTECODE", "STATE_DIRECTORY")
    kept = {name: value for name, value in os.environ.items() if name not in left_out and not name.startswith("FIRSTFAULT_")}
    places = {
        "HOME": home,
        "XDG_STATE_HOME": home / "state",
        "XDG_CACHE_HOME": caches / "cache",
        "PYTHONPYCACHEPREFIX": caches / "bytecode",
    }
    return kept | {name: str(place) for name, place in places.items()} | {"PYTHONPATH": str(ROOT / "daemon")}


def caches() -> Path:
    """Return where measurements keep bytecode and compiled patterns between runs, apart from the user's."""
    return OUT / "home"


@contextmanager
def scratch() -> Iterator[Path]:
    """Lend a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="firstfault-bench-") as folder:
        yield Path(folder)


def allow_files(count: int) -> None:
    """Raise this process's bound on open files as far as the system lets it; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass
class Daemon:
    """One `firstfault run`, with what its API and /proc tell of it."""

    process: subprocess.Popen[bytes]
    url: str

    def get(self, path: str) -> Any:
        """Return an answer of its API; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
                return json.load(answer)
        except (OSError, ValueError, urllib.error.URLError):
            return None

    def incidents(self) -> list[dict[str, Any]]:
        """Return its incidents, newest first."""
        return (self.get("/api/v1/incidents") or {}).get("incidents", [])

    def bytes_read(self) -> int:
        """Return how many bytes its sources have read."""
        status = self.get("/api/v1/status") or {}
        return sum(source["bytes_read"] for source in status.get("sources", ()))

    def waiting(self) -> int:
        """Return how many batches wait to be matched."""
        return int((self.get("/api/v1/status") or {}).get("queue", {}).get("items", 0))

    def rss_mb(self) -> float:
        """Return its resident memory in MB."""
        return _status_kb(self.process.pid, "VmRSS") * 1024 / 1e6

    def peak_mb(self) -> float:
        """Return the most resident memory it ever had, in MB."""
        return _status_kb(self.process.pid, "VmHWM") * 1024 / 1e6

    def cpu_secs(self) -> float:
        """Return the CPU time it has used."""
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def wait_for(self, what: str, ask: Callable[[], Any], within_secs: float, every_secs: float = 0.05) -> Any:
        """Ask until something true comes back; TimeoutError says what did not come."""
        until = time.monotonic() + within_secs
        while not (answer := ask()):
            if self.process.poll() is not None:
                raise RuntimeError(f"the daemon ended with {self.process.returncode} while waiting for {what}")
            if time.monotonic() > until:
                raise TimeoutError(f"no {what} within {within_secs:g} s")
            time.sleep(every_secs)
        return answer


def _status_kb(pid: int, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


@contextmanager
def daemon(folder: Path, config: Mapping[str, Any]) -> Iterator[Daemon]:
    """Run the daemon with a configuration until the block is left; its messages go to daemon.log in the folder."""
    file = folder / "firstfault.yaml"
    settings = {"web": {"listen": "127.0.0.1:0"}, "store": {"path": str(folder / "state")}, **config}
    file.write_text(json.dumps(settings))  # JSON is YAML
    words = [sys.executable, "-m", "firstfault.cli.main", "run", "-c", str(file)]
    with (folder / "daemon.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment(folder, caches()))
        try:
            yield _ready(Daemon(process, ""), folder)
        except BaseException:
            print((folder / "daemon.log").read_text(errors="replace")[-2000:], file=sys.stderr)
            raise
        finally:
            stop(process)


def _ready(one: Daemon, folder: Path) -> Daemon:
    from firstfault.store.folder import read_beacon

    beacon = one.wait_for("beacon", lambda: read_beacon(folder / "state"), READY_SECS)
    one.url = beacon.url
    return one


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started, and wait for its end."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class Receiver:
    """Take alerts as an Alertmanager does, and note when each request came."""

    url: str = ""
    posts: list[tuple[float, list[dict[str, Any]]]] = field(default_factory=list)  # (monotonic seconds, alerts)
    came: threading.Condition = field(default_factory=threading.Condition)

    def arrived(self, wanted: Callable[[dict[str, Any]], bool], within_secs: float) -> float | None:
        """Return when the first request came that holds a wanted alert; None if none comes in time."""
        until = time.monotonic() + within_secs
        with self.came:
            seen = 0
            while True:
                for at, alerts in self.posts[seen:]:
                    if any(map(wanted, alerts)):
                        return at
                seen = len(self.posts)
                if not self.came.wait(until - time.monotonic()) and time.monotonic() >= until:
                    return None


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Serve a receiver of alerts on loopback."""
    one = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            at = time.monotonic()
            alerts = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            with one.came:
                one.posts.append((at, alerts))
                one.came.notify_all()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
