"""A real firstfault that reads logs as jobs write them, real Alertmanagers, and a receiver that counts what people get.

Two paces: quick, where Alertmanager's waits are shortened, and real, with every default as it is (`make test-alerts`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.app.living import healthy, out_of_memory, stamp
from tests.services.real import Receiver, services
from tests.services.test_end_to_end import demo, until

REAL = os.environ.get("FIRSTFAULT_REAL_TIMES") == "1"
GROUPING = {"receiver": "hook", "group_by": ["namespace", "training_job", "fingerprint"]}


@dataclass(frozen=True)
class Pace:
    """How long things take."""

    route: dict[str, str]
    settings: dict[str, Any]
    calm_secs: float  # after which nothing more comes: more than two flushes of a group
    down_secs: float
    patience_secs: float


QUICK = Pace(
    {"group_wait": "1s", "group_interval": "2s"},
    {"incidents": {"settle_quiet_secs": 1, "settle_max_secs": 8}, "alertmanager": {"resend_secs": 1}},
    calm_secs=5,
    down_secs=6,
    patience_secs=90,
)
DEFAULTS = Pace({}, {}, calm_secs=660, down_secs=600, patience_secs=2700)  # patience for what happens while firstfault is down, too
PACE = DEFAULTS if REAL else QUICK


@dataclass
class World:
    """Everything of one story."""

    folder: Path
    receiver: Receiver
    pace: Pace = PACE
    alertmanagers: list[Any] = field(default_factory=list)
    daemon: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.port = services.free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    # servers

    def raise_alertmanagers(self, count: int = 1, **more: Any) -> None:
        """Start one, or a cluster of several that all notify the same receiver."""
        hook = {"name": "hook", "webhook_configs": [{"url": self.receiver.url, "send_resolved": True}]}
        config = self.folder / "alertmanager.yml"
        config.write_text(yaml.safe_dump({"route": GROUPING | self.pace.route, "receivers": [hook]} | more))
        gossip = [f"127.0.0.1:{services.free_port()}" for _ in range(count)]
        for number in range(count):
            peers = None if count == 1 else [gossip[number], *gossip[:number], *gossip[number + 1 :]]
            self.alertmanagers.append(services.alertmanager(self.folder, config, None, peers).start())

    def start(self, **changes: Any) -> None:
        """Start the daemon, or start it anew on the same state, and wait until it is ready."""
        config: dict[str, Any] = {
            "sources": {"files": [{"name": "files", "include": [f"{self.folder}/train/**/*.log"], "zone": "+00:00"}]},
            "alertmanager": {"targets": [{"url": one.url} for one in self.alertmanagers]},
            "store": {"path": str(self.folder / "state")},
            "web": {"listen": f"127.0.0.1:{self.port}", "external_url": self.url},
        }
        for name, section in (self.pace.settings | changes).items():
            config[name] = config.get(name, {}) | section
        file = self.folder / "firstfault.yaml"
        file.write_text(yaml.safe_dump(config))
        with (self.folder / "daemon.log").open("ab") as log:
            command = [sys.executable, "-m", "firstfault.cli.main", "run", "-c", str(file)]
            self.daemon = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: demo.get(f"{self.url}/-/ready"), self.pace.patience_secs)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon: in order, or as a machine that loses power would."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(how)
            self.daemon.wait(60)
        self.daemon = None

    def close(self) -> None:
        """End everything."""
        self.end()
        for server in self.alertmanagers:
            server.stop()

    # jobs

    def say(self, job: str, file: str, text: str) -> None:
        """Write on in one of a job's logs."""
        path = self.folder / "train" / job / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            log.write(text)

    def fail(self, job: str, rank: int = 2, ranks: int = 4, at: float | None = None) -> None:
        """Let a job train for a moment and run out of memory on one rank."""
        at = time.time() if at is None else at
        for one in range(ranks):
            self.say(job, f"rank{one}.log", healthy(one, at) + (out_of_memory(one, at) if one == rank else ""))

    # what people see

    def incidents(self, job: str) -> list[dict[str, Any]]:
        """Return the incidents of a job by the API, once it answers."""
        answer = until(lambda: demo.get(f"{self.url}/api/v1/incidents?job={job}"), self.pace.patience_secs)
        found: list[dict[str, Any]] = json.loads(answer)["incidents"]
        return found

    def settled(self, *jobs: str) -> None:
        """Wait until the incidents of jobs are settled."""
        for job in jobs:
            until(lambda job=job: any(one["state"] == "settled" for one in self.incidents(job)), self.pace.patience_secs)

    def pages(self, job: str) -> list[list[tuple[str, str, str]]]:
        """Return the notifications about a job: status, revision and ranks of the alerts of each."""
        about = [one for one in list(self.receiver.notifications) if one["groupLabels"].get("training_job") == job]
        return [
            sorted((a["status"], a["labels"]["revision"], a["annotations"]["initiating_ranks"]) for a in one["alerts"]) for one in about
        ]

    def paged(self, job: str, count: int = 1) -> None:
        """Wait for so many notifications about a job."""
        until(lambda: len(self.pages(job)) >= count, self.pace.patience_secs)

    def calm(self) -> None:
        """Let the time pass in which a notification too many would come: nothing else shows that none does."""
        count = len(self.receiver.notifications)
        deadline = time.monotonic() + self.pace.calm_secs
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if len(self.receiver.notifications) != count:
                count, deadline = len(self.receiver.notifications), time.monotonic() + self.pace.calm_secs


def refused(rank: int, at: float, peer: int) -> str:
    """Return what a rank prints when the one it talks to is gone."""
    return (
        f"{stamp(at)} ERROR [rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/data/train.py", line 90, in step\n'
        f"[rank{rank}]:     dist.all_reduce(loss)\n"
        f"[rank{rank}]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.{peer}]:1702\n"
    )


def many(world: World, job: str, ranks: Iterable[int], culprit: int) -> None:
    """Let one of very many ranks fail, and all others with it, a file for each 500 of them."""
    at = time.time()
    files: dict[str, list[str]] = {}
    for rank in ranks:
        lines = files.setdefault(f"node{rank // 500}.log", [])
        lines.append(f"{stamp(at - 5)} INFO [rank{rank}]: rank {rank} of world size 10000 started\n")
        lines.append(out_of_memory(rank, at - 2) if rank == culprit else refused(rank, at - 1, culprit % 200))
    for name, lines in files.items():
        world.say(job, name, "".join(lines))
