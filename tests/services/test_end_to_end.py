"""A failing job, a real daemon, a real Alertmanager and a real Prometheus: from the written line to the page and the metric."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.real import ROOT, Receiver, StartAlertmanager, StartPrometheus, alerts_of, load_script, program, services

demo = load_script("demo")
StartDaemon = Callable[..., "Daemon"]


class Daemon:
    """One `firstfault run` process."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.port = services.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = (folder / f"daemon-{self.port}.log").open("wb")
        command = [sys.executable, "-m", "firstfault.cli.main", "run", "--logs", f"{folder}/train/**/*.log", "--zone", "+00:00"]
        command += ["--listen", f"127.0.0.1:{self.port}", "--state-dir", str(folder / "state"), *words]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        until(lambda: demo.get(f"{self.url}/-/ready"), 60)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(30)
        self._log.close()

    def incidents(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(demo.get(f"{self.url}/api/v1/incidents") or b'{"incidents": []}')["incidents"]
        return found


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[StartDaemon]:
    """Start daemons that follow tmp_path/train and share one state folder."""
    running: list[Daemon] = []

    def start(*words: str) -> Daemon:
        running.append(Daemon(tmp_path, *words))
        return running[-1]

    yield start
    for daemon in running:
        daemon.end()


def until(check: Callable[[], Any], seconds: float) -> Any:
    """Wait until a check of another process holds."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, f"did not happen within {seconds} s"
        time.sleep(0.1)
    return found


def query(prometheus: Any, expression: str) -> list[dict[str, Any]]:
    """Return the vector an expression gives now."""
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def scrape(daemon: Daemon) -> dict[str, Any]:
    rules = [str(ROOT / "deploy" / "prometheus" / name) for name in ("firstfault-rules.yaml", "firstfault-incident-alerts.yaml")]
    job = {"job_name": "firstfault", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{daemon.port}"]}]}
    return {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": rules, "scrape_configs": [job]}


@pytest.mark.timeout(180)
def test_a_dying_job_is_one_page_and_one_open_incident(
    tmp_path: Path, start_daemon: StartDaemon, start_alertmanager: StartAlertmanager, start_prometheus: StartPrometheus, receiver: Receiver
) -> None:
    """The page names the rank that failed first; metrics count it; killing the daemon and starting it anew pages nobody again."""
    alertmanager = start_alertmanager(group_wait="1s", group_interval="2s")
    daemon = start_daemon("--alertmanager", alertmanager.url)
    prometheus = start_prometheus(scrape(daemon))
    demo.replay(demo.read_job(demo.SAMPLE), tmp_path / "train" / "pretrain", speed=10.0)

    assert len(receiver.wait_for(1, 100)) == 1
    (alert,) = receiver.notifications[0]["alerts"]
    assert alert["annotations"]["initiating_ranks"] == "7"
    assert alert["labels"]["training_job"] == "pretrain"
    (one,) = until(lambda: [x for x in daemon.incidents() if x["state"] == "settled"], 30)
    assert alert["annotations"]["incident_id"] == one["id"]
    assert urllib.parse.urlsplit(alert["annotations"]["runbook_url"]).path == f"/entries/{one['fingerprint']}"

    (series,) = until(lambda: query(prometheus, 'firstfault_incident_open{training_job="pretrain"}'), 15)
    assert (series["metric"]["fingerprint"], series["value"][1]) == (one["fingerprint"], "1")
    until(lambda: query(prometheus, 'ALERTS{alertname="TrainingFailure", training_job="pretrain"}'), 15)
    assert query(prometheus, 'up{job="firstfault"} == 1')

    daemon.end(signal.SIGKILL)
    again = start_daemon("--alertmanager", alertmanager.url)
    before = alerts_of(alertmanager.url)[0]["updatedAt"]
    until(lambda: [x for x in again.incidents() if x["id"] == one["id"]], 15)
    assert len(receiver.wait_for(2, 6)) == 1
    (standing,) = alerts_of(alertmanager.url)
    assert standing["updatedAt"] >= before
    assert len(again.incidents()) == 1


@pytest.mark.timeout(120)
def test_promtool_accepts_every_metric(tmp_path: Path, start_daemon: StartDaemon) -> None:
    """`promtool check metrics` finds nothing to complain about in a daemon that has seen a failure."""
    daemon = start_daemon()
    demo.replay(demo.read_job(demo.SAMPLE), tmp_path / "train" / "pretrain", speed=100.0)
    until(daemon.incidents, 60)
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=demo.get(f"{daemon.url}/metrics"), capture_output=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.timeout(180)
def test_the_demo_names_the_right_rank() -> None:
    """The story of `make run` ends by itself away from a terminal, prints what to look at, and succeeds only if it was right."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "demo.py")],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("failed first      rank 7 on c5n-4", "only followed     ranks 0", "verify            $", "/metrics"):
        assert part in done.stdout
