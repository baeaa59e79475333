"""What we ship for Prometheus and Alertmanager is valid by their own tools and documented."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.services.real import ROOT, program

PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTMANAGER = ROOT / "deploy" / "alertmanager"
RULE_FILES = sorted(path for path in PROMETHEUS.glob("firstfault-*.yaml") if not path.name.endswith(".test.yaml"))


def alerts() -> list[dict[str, Any]]:
    groups = [group for path in RULE_FILES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def run(tool: str, *words: str | Path) -> str:
    done = subprocess.run([program(tool), *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_rules_and_configuration() -> None:
    """Rules and scrape configuration pass promtool's checks."""
    run("promtool", "check", "rules", *RULE_FILES)
    run("promtool", "check", "config", PROMETHEUS / "scrape.yaml")


def test_every_alert_fires_and_keeps_quiet_as_its_unit_tests_say() -> None:
    """promtool's unit tests pass, and each alert has one that fires and one that does not."""
    file = PROMETHEUS / "firstfault-rules.test.yaml"
    run("promtool", "test", "rules", file)
    cases = [case for test in yaml.safe_load(file.read_text())["tests"] for case in test.get("alert_rule_test", ())]
    known = {rule["alert"] for rule in alerts()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == known
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == known


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_says_what_and_where_to_read_on(rule: dict[str, Any]) -> None:
    """Summary without labels, description, and a runbook; alerts on firstfault itself have a section of that name in the docs."""
    notes = rule["annotations"]
    assert "{{" not in notes["summary"]
    assert {"description", "runbook_url"} <= set(notes)
    if rule["alert"].startswith("FirstFault"):
        assert notes["runbook_url"].endswith(f"docs/alerts.md#{rule['alert'].lower()}")
        assert re.search(rf"^### {rule['alert']}$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)


def test_rules_speak_of_metrics_that_exist() -> None:
    """Every metric a rule names is one the daemon has."""
    from firstfault.telemetry import Telemetry

    known = {name for names in Telemetry().registry._collector_to_names.values() for name in names}
    used = {name for path in RULE_FILES for name in re.findall(r"(?<![:\w])firstfault_\w+", path.read_text())}
    assert used - known == set()


def test_amtool_accepts_the_example() -> None:
    """Configuration and templates pass amtool's check."""
    assert "SUCCESS" in run("amtool", "check-config", ALERTMANAGER / "alertmanager.yml")


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (("alertname=TrainingFailure", "severity=critical", "category=memory"), "training-oncall"),
        (("alertname=TrainingFailure", "severity=critical", "category=network"), "platform-oncall,training-oncall"),
        (("alertname=TrainingFailure", "severity=warning", "category=memory"), "training-chat"),
        (("alertname=FirstFaultDown", "severity=critical"), "platform-oncall"),
    ],
)
def test_the_example_routes_as_it_says(labels: tuple[str, ...], receivers: str) -> None:
    """Each kind of alert reaches who it is for."""
    told = run("amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER / 'alertmanager.yml'}", *labels)
    assert told.strip() == receivers
