"""Matchers and correlators as real processes on loopback, with a way to make a correlator slow, deaf or unreachable."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.app.living import healthy, out_of_memory
from tests.services.real import services

TOKEN = "sesame-open-up"
QUICK = {
    "incidents": {"settle_quiet_secs": 2, "settle_max_secs": 20},
    "store": {"checkpoint_secs": 0.3},
    "limits": {"shutdown_secs": 8},
    "console": {"format": "none"},
}


class Process:
    """One `firstfault run` with a configuration and a state folder of its own; it can be killed and started again."""

    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = services.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        state = {"store": QUICK["store"] | {"path": str(self.folder / "state")}, "web": {"listen": f"127.0.0.1:{self.port}"}}
        self.file = self.folder / "firstfault.yaml"
        self.file.write_text(yaml.safe_dump(QUICK | state | config))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        """Run it until it is ready."""
        with (self.folder / "daemon.log").open("ab") as log:
            command = [sys.executable, "-m", "firstfault.cli.main", "run", "-c", str(self.file)]
            process = self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: self.get("/-/ready") is not None or process.poll() is not None, 120)
        assert process.poll() is None, f"it ended at once: {self.log()[-2000:]}"
        return self

    def kill(self) -> None:
        """End it as a power cut would."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(60)

    def get(self, path: str) -> Any:
        """Return what a path answers: plain data, or text; None where it does not."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                body = answer.read()
                return json.loads(body) if answer.headers.get_content_type() == "application/json" else body.decode()
        except (OSError, urllib.error.HTTPError):
            return None

    def incidents(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (self.get("/api/v1/incidents") or {"incidents": []})["incidents"]
        return found

    def settled(self) -> list[dict[str, Any]]:
        return [one for one in self.incidents() if one["state"] == "settled"]

    def metric(self, series: str) -> float:
        """Return a sample by its name and labels; 0 where there is none."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.get("/metrics") or "", re.MULTILINE)
        return float(found[1]) if found else 0.0

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()


Run = Callable[[Process], Process]


def running(how: signal.Signals = signal.SIGTERM) -> Iterator[Run]:
    """Be the body of a fixture: start processes, and end those that are left."""
    started: list[Process] = []

    def start(one: Process) -> Process:
        started.append(one)
        return one.start()

    yield start
    for one in started:
        one.end(how)


def correlator(folder: Path, name: str = "correlator", **config: Any) -> Process:
    token = folder / "token"
    token.write_text(TOKEN + "\n")
    return Process(folder, name, {"role": "correlator", "events": {"bearer_token_file": str(token)}} | config)


def matcher(folder: Path, name: str, targets: list[str], token: str = TOKEN, http: dict[str, Any] | None = None, **config: Any) -> Process:
    """Return a matcher that follows folder/<name>/logs as a machine of that name does."""
    sources = [{"include": [f"{folder / name}/logs/**/*.log"], "job": "pretrain", "zone": "+00:00", "poll_ms": 50, "scan_ms": 100}]
    sent = {"targets": [{"url": url, "bearer_token": token} for url in targets], "batch_secs": 0.1, "retry_max_secs": 1}
    role = {"role": "matcher", "matcher": {"node": name, "progress_secs": 1}, "transport": {"http": sent | (http or {})}}
    return Process(folder, name, role | {"sources": {"files": sources}} | config)


def write_ranks(process: Process, ranks: range, fails: int | None = None) -> None:
    """Let ranks of a job of four train on a machine, one of which may run out of memory."""
    logs = process.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    now = time.time()
    for rank in ranks:
        with (logs / f"rank{rank}.log").open("a") as log:
            log.write(healthy(rank, now) + (out_of_memory(rank, now) if rank == fails else ""))


def until(check: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until a check of other processes holds."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, f"did not happen within {seconds} s"
        time.sleep(0.05)
    return found
