"""Metrics by their public names, bounded and zero from the start; one event a happening."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from firstfault.clock import ManualClock
from firstfault.errors import ConfigError, Fault, StoreError
from firstfault.telemetry import Telemetry
from tests.app.make import NOW, change, event, incident, shipped

ROOT = Path(__file__).parent.parent.parent
CONTRACT = {
    "firstfault_build_info": {"version"},
    "firstfault_bytes_total": {"source"},
    "firstfault_lines_total": {"source"},
    "firstfault_unattributed_events_total": {"source"},
    "firstfault_dropped_total": {"source", "reason"},
    "firstfault_events_total": {"fingerprint", "category", "role"},
    "firstfault_incidents_total": {"fingerprint", "category", "area", "severity"},
    "firstfault_incident_open": {"training_job", "namespace", "fingerprint", "category", "severity"},
    "firstfault_verdicts_total": {"scope"},
    "firstfault_verdict_seconds_bucket": {"le"},
    "firstfault_fix_declared_timestamp_seconds": {"fingerprint"},
    "firstfault_fix_last_hit_timestamp_seconds": {"fingerprint"},
    "firstfault_recurrences_total": {"fingerprint"},
    "firstfault_revisions_total": {"fingerprint"},
    "firstfault_feedback_total": {"fingerprint", "verdict"},
    "firstfault_alerts_sent_total": {"alertmanager"},
    "firstfault_alerts_failed_total": {"alertmanager", "reason"},
    "firstfault_source_last_read_timestamp_seconds": {"source"},
    "firstfault_config_last_reload_successful": set(),
    "firstfault_config_last_reload_successful_timestamp_seconds": set(),
    "firstfault_rules_last_reload_successful": set(),
    "firstfault_rules_last_reload_successful_timestamp_seconds": set(),
}


@pytest.fixture
def telemetry():
    with capture_logs():
        yield Telemetry(clock=ManualClock(NOW), most_open_series=5)


def samples(telemetry: Telemetry) -> dict[tuple, float]:
    families = text_string_to_metric_families(generate_latest(telemetry.registry).decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return samples(telemetry).get((name, tuple(sorted(labels.items()))))


def test_every_public_metric_exists_with_its_labels(telemetry):
    """Dashboards and alert rules call these names and labels."""
    telemetry.rules_loaded(shipped())
    telemetry.source_configured("files")
    telemetry.source_read("files", 10)
    telemetry.dropped("files", "internal-error")
    telemetry.incident_changed(change())
    telemetry.incidents_open([incident()])
    telemetry.fix_declared("cuda-out-of-memory", "train", NOW)
    telemetry.recurred("cuda-out-of-memory", "train", NOW)
    telemetry.alerts_sent("http://a", 1)
    telemetry.alerts_failed("http://a", "unreachable", 1, "")
    telemetry.config_loaded(None)
    found: dict[str, set[str]] = {}
    for name, labels in samples(telemetry):
        found.setdefault(name, set()).update(label for label, _ in labels)
    assert {name: found.get(name) for name in CONTRACT} == CONTRACT


def test_counters_of_every_entry_are_zero_from_the_start(telemetry):
    """The first hit is an increase."""
    rules = shipped()
    telemetry.rules_loaded(rules)
    found = samples(telemetry)
    for entry in rules.entries.values():
        labels = {"fingerprint": entry.fingerprint, "category": entry.category, "area": entry.area, "severity": entry.severity}
        assert found["firstfault_incidents_total", tuple(sorted(labels.items()))] == 0
        assert found["firstfault_recurrences_total", (("fingerprint", entry.fingerprint),)] == 0
    assert value(telemetry, "firstfault_verdicts_total", scope="undetermined") == 0


def test_no_created_series_and_no_forbidden_labels(telemetry):
    """Ranks, hosts, paths and ids are never labels, and nothing doubles the series."""
    telemetry.rules_loaded(shipped())
    telemetry.incident_changed(change())
    telemetry.events_seen("files", [event()])
    names = {name for name, _ in samples(telemetry)}
    labels = {label for _, pairs in samples(telemetry) for label, _ in pairs}
    assert not [name for name in names if name.endswith("_created")]
    assert not labels & {"rank", "pod", "host", "node", "path", "message", "incident", "incident_id", "job"}


def test_an_incident_counts_when_it_settles_with_its_id_as_exemplar(telemetry):
    """Opening is provisional and counts nothing; the exemplar leads from a graph to the incident."""
    telemetry.rules_loaded(shipped())
    telemetry.incident_changed(change("opened", incident(state="open")))
    name, labels = "firstfault_verdicts_total", {"scope": "rank"}
    assert value(telemetry, name, **labels) == 0
    telemetry.incident_changed(change())
    assert value(telemetry, name, **labels) == 1
    text = openmetrics(telemetry.registry).decode()
    assert re.search(r'firstfault_incidents_total\{[^}]*fingerprint="cuda-out-of-memory"[^}]*\} 1\.0 # \{incident_id="i1"\}', text)
    assert re.search(r'firstfault_verdict_seconds_bucket\{le="5\.0"\} 1\.0 # \{incident_id="i1"\} 4\.0', text)


def test_history_counts_apart(telemetry):
    """A rule over our counters must not page for what is long past."""
    telemetry.rules_loaded(shipped())
    telemetry.incident_changed(change("settled", incident(historic=True)))
    telemetry.incidents_open([incident(historic=True), incident(state="open")])
    assert value(telemetry, "firstfault_historic_incidents_total", fingerprint="cuda-out-of-memory") == 1
    assert value(telemetry, "firstfault_verdicts_total", scope="rank") == 0
    assert not [name for name, _ in samples(telemetry) if name == "firstfault_incident_open"]


def test_open_incidents_vanish_and_are_capped(telemetry):
    """A closed incident's series is gone at the next scrape; a flood of job names hits the cap and is counted."""
    from dataclasses import replace

    from firstfault.model import JobKey

    flood = [replace(incident(f"i{n}"), key=JobKey("team", f"job-{n}")) for n in range(20)]
    telemetry.incidents_open(flood)
    shown = [labels for name, labels in samples(telemetry) if name == "firstfault_incident_open"]
    assert (len(shown), value(telemetry, "firstfault_incident_open_capped")) == (5, 15)
    telemetry.incidents_open([])
    assert not [name for name, _ in samples(telemetry) if name == "firstfault_incident_open"]
    assert value(telemetry, "firstfault_incident_open_capped") == 0


def test_events_count_by_role_and_unattributed_ones_by_source(telemetry):
    """An event that nobody can be found for is counted beside."""
    telemetry.rules_loaded(shipped())
    telemetry.events_seen("files", [event(), event("other", rank=None)])
    category = shipped().entries["cuda-out-of-memory"].category
    labels = {"fingerprint": "cuda-out-of-memory", "category": category, "role": "initiating"}
    assert value(telemetry, "firstfault_events_total", **labels) == 2
    assert value(telemetry, "firstfault_unattributed_events_total", source="files") == 1


def test_a_refused_reload_shows_and_names_every_fault():
    """The gauge falls to 0, keeps the time of the last success, and the log lists the reasons."""
    telemetry = Telemetry(clock=ManualClock(NOW))
    with capture_logs() as logs:
        telemetry.config_loaded("a.yaml")
        telemetry.config_refused(ConfigError([Fault("a.yaml", 3, "bad"), Fault("a.yaml", 1, "worse")]))
    assert value(telemetry, "firstfault_config_last_reload_successful") == 0
    assert value(telemetry, "firstfault_config_last_reload_successful_timestamp_seconds") == NOW
    assert logs[-1]["faults"] == ["a.yaml:1: worse", "a.yaml:3: bad"]


def test_a_failing_store_is_logged_once_and_counted_every_time():
    """A full disk does not fill the log as well."""
    telemetry = Telemetry()
    with capture_logs() as logs:
        for first in (True, False, False):
            telemetry.store_failed(StoreError("full"), first)
    assert value(telemetry, "firstfault_store_errors_total") == 3
    assert len(logs) == 1


def test_failing_paths_are_a_gauge_that_recovers(telemetry):
    """An alert on it resolves by itself."""
    telemetry.source_configured("files")
    telemetry.source_error("files", "/a", "denied")
    telemetry.source_error("files", "/b", "denied")
    telemetry.source_recovered("files", "/a")
    assert value(telemetry, "firstfault_source_failing_paths", source="files") == 1
    assert value(telemetry, "firstfault_source_errors_total", source="files") == 2


def test_a_metric_moves_only_in_telemetry():
    """No other module touches a metric: one place a happening."""
    package = ROOT / "daemon" / "firstfault"
    for path in package.rglob("*.py"):
        if path.parent.name != "telemetry":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"from prometheus_client import .*\b(Counter|Gauge|Histogram|Summary)\b", text), path


def test_every_metric_is_documented(telemetry):
    """Each exported name stands in the table of docs/http.md."""
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    for family in telemetry.registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert f"`{name}`" in page, f"{name} is not documented"


def test_an_outage_of_an_alertmanager_is_logged_once_and_counted_every_time():
    """The failures people alert on are there at zero; a repeat without detail moves the counter only."""
    with capture_logs() as logs:
        telemetry = Telemetry(clock=ManualClock(NOW))
        telemetry.alertmanager_configured("http://a")
        assert value(telemetry, "firstfault_alerts_failed_total", alertmanager="http://a", reason="refused") == 0
        for detail in ("connection refused", "", ""):
            telemetry.alerts_failed("http://a", "unreachable", 1, detail)
    assert [one["detail"] for one in logs if one["event"] == "alerts not taken"] == ["connection refused"]
    assert value(telemetry, "firstfault_alerts_failed_total", alertmanager="http://a", reason="unreachable") == 3
