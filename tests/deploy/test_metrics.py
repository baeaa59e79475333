"""What dashboards and rules take for granted of the metrics: zero from the start, a way to the console, bounds in a hostile daemon."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from firstfault.telemetry import Telemetry
from tests.services.real import program
from tests.services.test_end_to_end import Daemon, until

FLOOD = 300  # failing jobs, of which the configuration lets 100 be shown
NAMES = 100_000  # further job names without a failure


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    with capture_logs():
        yield Telemetry()


def value(telemetry: Telemetry, series: str) -> float | None:
    """Return the value of a series as exported."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", generate_latest(telemetry.registry).decode(), re.MULTILINE)
    return float(found[1]) if found else None


@pytest.mark.parametrize(
    "series",
    [
        'firstfault_dropped_total{reason="internal-error",source="files"}',
        'firstfault_source_truncated_total{source="files"}',
        'firstfault_source_rotated_total{source="files"}',
        'firstfault_source_lost_files_total{source="files"}',
        'firstfault_source_errors_total{source="files"}',
        'firstfault_unattributed_events_total{source="files"}',
        'firstfault_alerts_sent_total{alertmanager="http://am"}',
        'firstfault_alerts_failed_total{alertmanager="http://am",reason="unreachable"}',
        'firstfault_jobs_hidden_total',
        'firstfault_incident_open_capped',
    ],
)  # fmt: skip
def test_counters_start_at_zero(telemetry: Telemetry, series: str) -> None:
    """`increase()` sees the very first hit, since the series was there before it."""
    telemetry.source_configured("files")
    telemetry.alertmanager_configured("http://am")
    assert value(telemetry, series) == 0


def test_a_path_counts_as_failing_once_whatever_fails_about_it(telemetry: Telemetry) -> None:
    """Another error of the same path is no second path, and one recovery ends it; or its alert would never resolve."""
    telemetry.source_configured("files")
    for error in ("denied", "too many links", "denied"):
        telemetry.source_error("files", "/a", error)
    assert value(telemetry, 'firstfault_source_failing_paths{source="files"}') == 1
    telemetry.source_recovered("files", "/a")
    assert value(telemetry, 'firstfault_source_failing_paths{source="files"}') == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://firstfault.example.com/", "https://firstfault.example.com"),
        ("https://ann:secret@firstfault.example.com:8443/team", "https://firstfault.example.com:8443/team"),
        ("http://[::1]:9465", "http://[::1]:9465"),
    ],
)
def test_dashboards_learn_where_the_console_is(telemetry: Telemetry, url: str, shown: str) -> None:
    """One series carries the URL without a password; a new URL replaces it."""
    telemetry.console_at("http://before")
    telemetry.console_at(url)
    assert value(telemetry, f'firstfault_console_info{{url="{shown}"}}') == 1
    assert generate_latest(telemetry.registry).decode().count("firstfault_console_info{") == 1


def record(job: str, text: str) -> str:
    """Return one record as Fluent Bit writes it, of a pod of this job."""
    now = datetime.now(UTC)
    pod = {"namespace_name": "evil", "pod_name": f"{job}-worker-0", "labels": {"jobset.sigs.k8s.io/jobset-name": job}}
    return json.dumps({"time": now.isoformat(), "stream": "stderr", "log": f"[rank0]: {text}\n", "kubernetes": pod}) + "\n"


def write_flood(folder: Path) -> None:
    """Write what a hostile, or badly labelled, cluster writes: a name of its own on every record."""
    folder.mkdir(parents=True)
    with (folder / "failing.log").open("w") as file:
        for n in range(FLOOD):
            size = f"{n % 97 + 1}.{n % 89:02} GiB"
            file.write(record(f"a-{n}", f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 has {n} free"))
    with (folder / "names.log").open("w") as file:
        file.writelines(record(f"b-{n}", f"step {n} loss 1.0") for n in range(NAMES))


def scrape(daemon: Daemon, accept: str = "text/plain") -> tuple[str, float]:
    """Return a scrape and how long it took."""
    began = time.monotonic()
    request = urllib.request.Request(f"{daemon.url}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode(), time.monotonic() - began


def sample(text: str, series: str) -> float:
    """Return a sample of a scrape; 0 where it has none."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.timeout(120)
def test_a_hostile_log_hits_the_cap_is_counted_and_hurts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred thousand job names, metrics stay small and valid, the surplus is counted, and a real job's failure is still found."""
    for name, bound in {
        "LIMITS__OPEN_INCIDENT_SERIES": "100",
        "INCIDENTS__SETTLE_QUIET_SECS": "1",
        "INCIDENTS__SETTLE_MAX_SECS": "5",
    }.items():
        monkeypatch.setenv(f"FIRSTFAULT_{name}", bound)
    daemon = Daemon(tmp_path)
    try:
        write_flood(tmp_path / "train" / "shared")
        until(lambda: sample(scrape(daemon)[0], 'firstfault_lines_total{source="files"}') >= FLOOD + NAMES, 60)
        until(lambda: sample(scrape(daemon)[0], "firstfault_incident_open_capped") == FLOOD - 100, 60)
        (tmp_path / "train" / "real").mkdir()
        (tmp_path / "train" / "real" / "rank3.log").write_text(
            f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} [rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        )
        until(lambda: [one for one in daemon.incidents() if one["job"] == "real" and one["state"] == "settled"], 30)
        text, seconds = scrape(daemon)
        openmetrics, _ = scrape(daemon, "application/openmetrics-text")
    finally:
        daemon.end()
    assert len(re.findall(r"^firstfault_incident_open\{", text, re.MULTILINE)) == 100
    assert sample(text, "firstfault_jobs") <= 100
    assert len(text) < 400_000
    assert seconds < 5
    assert openmetrics.rstrip().endswith("# EOF")
    done = subprocess.run([program("promtool"), "check", "metrics"], input=text.encode(), capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
