"""A real daemon that sees jobs train and die, scraped by a real Prometheus with the shipped rules, and telling a real Alertmanager."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.services.real import ROOT, load_script, services
from tests.services.test_end_to_end import until

demo = load_script("demo")
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = ("firstfault-rules.yaml", "firstfault-incident-alerts.yaml")
SAMPLES = ROOT / "daemon" / "firstfault" / "_samples"
FAILING = ("native-crash", "bad-record", "mixed-dtypes")
JOB = "bad-record"  # the job that the dashboard of one job is asked for
REPLAY_SECS = 8.0
PATIENCE_SECS = 60.0  # with what other tests leave of the processor


class Stack:
    """The running servers, and what was asked of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = services.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.dead_port = services.free_port()
        self.daemon: subprocess.Popen[bytes] | None = None
        self._running: list[Any] = []

    # life

    def start(self) -> None:
        """Start everything, let jobs train and fail, and wait until verdicts are settled and scraped."""
        route = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}
        self.alertmanager = self._serve(services.alertmanager, "alertmanager.yml", route)
        self.configure()
        self._run_daemon()
        self.prometheus = self._serve(services.prometheus, "prometheus.yml", self._scraping())
        self._query_until("min_over_time(firstfault_ready[10s])")
        self.replay("healthy", *FAILING)
        until(lambda: len(self.settled()) == len(FAILING), PATIENCE_SECS)
        self._query_until(f"count(firstfault_incident_open) == {len(FAILING)}")

    def stop(self) -> None:
        """Stop what was started."""
        for server in reversed(self._running):
            server.stop()
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGTERM)
            self.daemon.wait(30)

    def configure(self, **changes: Any) -> None:
        """Write the daemon's configuration."""
        config = {
            "sources": {"files": [{"name": "files", "include": [f"{self.folder}/train/**/*.log"], "zone": "+00:00"}]},
            "alertmanager": {"targets": [{"url": self.alertmanager.url}, {"url": f"http://127.0.0.1:{self.dead_port}"}], "resend_secs": 1},
            "incidents": {"settle_quiet_secs": 1, "settle_max_secs": 8},
            "store": {"path": str(self.folder / "state")},
            "web": {"listen": f"127.0.0.1:{self.port}", "external_url": self.url, "lifecycle": True},
        }
        (self.folder / "firstfault.yaml").write_text(yaml.safe_dump(config | changes))

    def replay(self, *names: str) -> None:
        """Let jobs write their old lines, with stamps of now, all at once."""
        threads = [threading.Thread(target=self._replay, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _replay(self, name: str) -> None:
        pieces = demo.read_job(SAMPLES / name)
        demo.replay(pieces, self.folder / "train" / name, speed=(pieces[-1].at - pieces[0].at) / REPLAY_SECS)

    def _run_daemon(self) -> None:
        command = [sys.executable, "-m", "firstfault.cli.main", "run", "-c", str(self.folder / "firstfault.yaml")]
        with (self.folder / "daemon.log").open("wb") as log:
            self.daemon = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: demo.get(f"{self.url}/-/ready"), PATIENCE_SECS)

    def _serve(self, describe: Any, name: str, config: dict[str, Any]) -> Any:
        file = self.folder / name
        file.write_text(yaml.safe_dump(config))
        server = describe(self.folder, file).start()
        self._running.append(server)
        return server

    def _scraping(self) -> dict[str, Any]:
        """Scrape the daemon, and a firstfault that is not there; the rules are those that are shipped, in a hurry."""
        for name in RULES:
            (self.folder / name).write_text(hurried((PROMETHEUS / name).read_text()))
        shipped = yaml.safe_load((PROMETHEUS / "scrape.yaml").read_text())
        (job,) = shipped["scrape_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{self.port}", f"127.0.0.1:{self.dead_port}"]}]
        return shipped | {"global": {"scrape_interval": "2s", "evaluation_interval": "1s"}, "rule_files": list(RULES)}

    # asking

    def get(self, path: str) -> Any:
        """Return what the daemon's API answers."""
        return json.loads(demo.get(self.url + path) or b"{}")

    def post(self, path: str, body: dict[str, Any] | None = None) -> int:
        """Return the status of a POST to the daemon."""
        data, headers = json.dumps(body or {}).encode(), {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def settled(self) -> list[dict[str, Any]]:
        """Return the settled incidents."""
        found: list[dict[str, Any]] = self.get("/api/v1/incidents?state=settled").get("incidents", [])
        return found

    def ask(self, path: str, **query: Any) -> Any:
        """Return what Prometheus' API answers."""
        words = urllib.parse.urlencode(query, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.prometheus.url}/api/v1/{path}?{words}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from None

    def vector(self, expression: str) -> list[dict[str, Any]]:
        """Return the vector that an expression gives now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        return {one["metric"]["alertname"] for one in self.vector('ALERTS{alertstate="firing"}')}

    def _query_until(self, expression: str) -> None:
        until(lambda: self.vector(expression), PATIENCE_SECS)


def hurried(rules: str) -> str:
    """Return rules whose alerts wait seconds instead of minutes; what they ask stays as it is."""
    return re.sub(r"^( +(?:for|keep_firing_for)): \d+[smh]$", r"\1: 2s", rules, flags=re.MULTILINE)
