"""Rules and dashboards with a real Prometheus that scraped a real daemon: every panel returns data, the right alerts fire."""

from __future__ import annotations

import json
import math
import subprocess
import time
import urllib.request
from contextlib import suppress
from typing import Any

import pytest

from tests.deploy.boards import BOARDS, filled, selectors, targets, variables
from tests.deploy.stack import FAILING, JOB, PATIENCE_SECS, Stack, demo
from tests.services.real import alerts_of, program
from tests.services.test_end_to_end import until

pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("deploy-stack")]

RESTLESS = {"TrainingFailure", "FirstFaultDown", "FirstFaultAlertmanagerUnreachable"}  # what the stack gives reason for
CHOSEN = {"namespace": "default", "training_job": JOB}


@pytest.fixture(scope="module")
def told(stack: Stack) -> Stack:
    """The stack after people declared a fix and called verdicts right and wrong."""
    one, two, *_ = stack.settled()
    assert stack.post("/api/v1/fixes", {"fingerprint": one["fingerprint"], "job": "another-job", "note": "raised the limit"}) in (200, 201)
    assert stack.post(f"/api/v1/incidents/{one['id']}/feedback", {"right": True, "who": "ann"}) in (200, 201)
    assert stack.post(f"/api/v1/incidents/{two['id']}/feedback", {"initiating_rank": 0, "who": "ann"}) in (200, 201)
    until(lambda: stack.vector("firstfault_fix_declared_timestamp_seconds"), PATIENCE_SECS)
    until(lambda: stack.vector('increase(firstfault_feedback_total{verdict="wrong"}[1m]) > 0'), PATIENCE_SECS)
    return stack


def numbers(stack: Stack, target: dict[str, Any], **chosen: str) -> list[float]:
    """Return what a panel would show of one query: its newest number of each series that has one."""
    expression = filled(target["expr"], **chosen)
    if target["instant"]:
        found = [[one["value"]] for one in stack.vector(expression)]
    else:
        now = time.time()
        answer = stack.ask("query_range", query=expression, start=now - 120, end=now, step=1)["result"]
        found = [one["values"] for one in answer]
    finite = [[float(text) for _, text in points if math.isfinite(float(text))] for points in found]
    return [points[-1] for points in finite if points]


def patiently(stack: Stack, target: dict[str, Any]) -> list[float]:
    """Ask again for a while: a scrape that comes late on a busy machine leaves a gap."""
    with suppress(AssertionError):
        until(lambda: numbers(stack, target, **CHOSEN), 10)
    return numbers(stack, target, **CHOSEN)


def test_every_panel_returns_data(told: Stack) -> None:
    """No panel of any dashboard is empty once jobs have failed; what each query returned is printed."""
    empty = []
    for name, board in BOARDS.items():
        for panel, target in targets(board):
            shown = numbers(told, target, **CHOSEN) or patiently(told, target)
            some = ", ".join(f"{number:.6g}" for number in shown[:4]) + (", ..." if len(shown) > 4 else "")
            print(f"{name:24} {panel['title']:30} {target['refId']} {len(shown):4} series: {some or 'NOTHING'}")
            empty += [] if shown else [f"{name} / {panel['title']} {target['refId']}: {filled(target['expr'], **CHOSEN)}"]
    assert not empty


def test_panels_show_what_happened(told: Stack) -> None:
    """The numbers are right, not only there: jobs, ranks, steps and failures are those that were replayed."""

    def shown(board: str, title: str) -> list[float]:
        found = [target for panel, target in targets(BOARDS[board]) if panel["title"] == title]
        return [number for target in found for number in numbers(told, target, **CHOSEN)]

    expected = {
        ("firstfault-incidents", "Jobs affected"): [len(FAILING)],
        ("firstfault-incidents", "Open incidents by job"): [1] * len(FAILING),
        ("firstfault-job", "Ranks heard"): [8],
        ("firstfault-job", "World size"): [8],
        ("firstfault-job", "Last step"): [max(_steps(JOB))],
        ("firstfault-encyclopedia", "Entries that fired"): [len(FAILING)],
        ("firstfault-itself", "Ready"): [1],
    }
    until(lambda: {place: shown(*place) for place in expected} == expected, PATIENCE_SECS)
    never = until(lambda: shown("firstfault-encyclopedia", "Never fired"), PATIENCE_SECS)
    assert len(never) == shown("firstfault-encyclopedia", "Entries")[0] - len(FAILING)


def _steps(job: str) -> list[float]:
    """Read the steps that the sample's ranks printed, with the project's own reader."""
    from firstfault.text.steps import read_step
    from tests.deploy.stack import SAMPLES

    found = [read_step(piece.text.split("|")[-1]) or read_step(piece.text) for piece in demo.read_job(SAMPLES / job)]
    return [one.step for one in found if one is not None and one.step is not None]


def test_variables_and_marks_have_values(told: Stack) -> None:
    """Each choice of a dashboard offers something, the console's URL is the daemon's, and incidents are marked."""
    for board in BOARDS.values():
        for name, one in variables(board).items():
            inside = one["query"].removeprefix("label_values(").removesuffix(")")
            selector, _, label = inside.rpartition(", ")
            found = told.ask(f"label/{label}/values", **{"match[]": filled(selector, **CHOSEN)})
            assert found, f"{board['uid']}: {name}"
            if name == "console":
                assert found == [told.url]
            if name == "training_job":
                assert {*FAILING, "healthy"} == set(found)
        (marks,) = board["annotations"]["list"]
        assert patiently(told, {"expr": marks["expr"], "instant": False})


def test_links_lead_to_the_console_and_the_runbook(told: Stack) -> None:
    """The pages that links of dashboards point at are there, for every failure that is shown."""
    assert demo.get(f"{told.url}/")
    for one in told.vector("firstfault_incident_open"):
        assert demo.get(f"{told.url}/entries/{one['metric']['fingerprint']}")


def test_an_exemplar_leads_from_a_counter_to_its_incident(stack: Stack) -> None:
    """Prometheus keeps the incident's id with the count, and the API knows it."""
    until(lambda: exemplars(stack) == {one["id"] for one in stack.settled()}, PATIENCE_SECS)
    assert all(stack.get(f"/api/v1/incidents/{name}")["id"] == name for name in exemplars(stack))


def exemplars(stack: Stack) -> set[str]:
    """Return the incidents that exemplars of the last minutes lead to."""
    kept = stack.ask("query_exemplars", query="firstfault_incidents_total", start=time.time() - 600, end=time.time())
    return {one["labels"]["incident_id"] for series in kept for one in series["exemplars"]}


def test_promtool_accepts_what_was_scraped(told: Stack) -> None:
    """`promtool check metrics` has nothing to say of a daemon that found, told, counted and was corrected."""
    scraped = demo.get(f"{told.url}/metrics")
    done = subprocess.run([program("promtool"), "check", "metrics"], input=scraped, capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_openmetrics_is_well_formed(told: Stack) -> None:
    """The stricter format, with exemplars, is parsed by its reference parser."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    request = urllib.request.Request(f"{told.url}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    exemplars = [one.exemplar for family in families for one in family.samples if one.exemplar]
    assert {name for one in exemplars for name in one.labels} == {"incident_id"}


def test_rules_are_evaluated_and_only_the_right_alerts_fire(stack: Stack) -> None:
    """No rule errs on real series; failing jobs, a firstfault that is down and an Alertmanager that is down fire, nothing else does."""
    until(lambda: stack.firing() == RESTLESS, PATIENCE_SECS)
    rules = [rule for group in stack.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    for rule in rules:
        if rule["type"] == "recording":
            assert stack.vector(rule["name"]), rule["name"]


def test_a_page_from_metrics_says_what_a_pushed_one_says(stack: Stack) -> None:
    """The alerts of the rules and those that are pushed are about the same jobs and failures, with the same category and severity."""
    shared = ("namespace", "training_job", "fingerprint", "category", "severity")

    def ruled() -> set[tuple[str, ...]]:
        firing = stack.vector('ALERTS{alertname="TrainingFailure", alertstate="firing"}')
        return {tuple(one["metric"][name] for name in shared) for one in firing}

    def pushed() -> set[tuple[str, ...]]:
        return {tuple(one["labels"][name] for name in shared) for one in alerts_of(stack.alertmanager.url)}

    until(lambda: len(ruled()) == len(FAILING) and ruled() == pushed(), PATIENCE_SECS)


def test_a_refused_reload_fires_and_resolves(stack: Stack) -> None:
    """A broken configuration shows within a scrape, and its correction ends the alert."""
    stack.configure(nonsense=True)
    assert stack.post("/-/reload") == 400
    until(lambda: "FirstFaultReloadFailed" in stack.firing(), PATIENCE_SECS)
    stack.configure()
    assert stack.post("/-/reload") == 200
    until(lambda: stack.firing() == RESTLESS, PATIENCE_SECS)


def test_what_cannot_be_read_fires_and_resolves(stack: Stack) -> None:
    """A log that cannot be opened is told by its source's gauge, and no longer once it is gone."""
    loop = stack.folder / "train" / "loop.log"
    loop.symlink_to(loop)
    try:
        until(lambda: "FirstFaultSourceFailing" in stack.firing(), PATIENCE_SECS)
    finally:
        loop.unlink()
    until(lambda: stack.firing() == RESTLESS, PATIENCE_SECS)


def test_every_metric_that_is_scraped_is_asked_for_or_documented_for_people(told: Stack) -> None:
    """What dashboards and rules never ask for is a short list, each for a reason."""
    asked = {metric for board in BOARDS.values() for _, target in targets(board) for metric, _, _ in selectors(target["expr"])}
    text = json.dumps(told.ask("rules"))
    unasked = {name for name in told.ask("label/__name__/values") if name.startswith("firstfault_")} - asked
    unasked = {name for name in unasked if name not in text and not name.endswith(("_count", "_sum"))}
    assert unasked <= {
        "firstfault_build_info",  # which version runs; dashboards choose instances by it
        "firstfault_console_info",  # where dashboards' links lead
        "firstfault_historic_incidents_total",  # what happened before firstfault came: for the API and console
        "firstfault_config_last_reload_successful_timestamp_seconds",  # since when, once the gauges beside them say that
        "firstfault_rules_last_reload_successful_timestamp_seconds",
        "firstfault_jobs_hidden_total",  # only a flood moves it, which firstfault_incident_open_capped pages for
        "firstfault_deliveries_failed_total",  # of sinks that are configured beside Alertmanager
    }
