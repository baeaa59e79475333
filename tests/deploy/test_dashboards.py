"""The committed dashboards keep the rules of Grafana's dashboard-linter and what provisioning asks for, and are what their code writes."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from itertools import combinations
from typing import Any

import pytest
import yaml

from firstfault.telemetry import Telemetry
from tests.deploy.boards import BOARDS, FOLDER, GENERATOR, panels, selectors, targets, variables
from tests.services.plugin import missing

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NAMES = ("firstfault-encyclopedia", "firstfault-incidents", "firstfault-itself", "firstfault-job")
# Of the units that the linter knows (grafana-data, valueFormats/categories.ts), those that make sense here.
UNITS = {"short", "percentunit", "s", "bytes", "Bps", "cps", "none"}
COUNTERS = re.compile(r"_(?:total|bucket|sum|count)$")

every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def test_the_four_dashboards_are_there_under_stable_names() -> None:
    """Links and bookmarks hold: the uid is the file's name, and never changes."""
    assert tuple(BOARDS) == NAMES
    assert tuple(board["uid"] for board in BOARDS.values()) == NAMES


def test_what_is_committed_is_what_the_code_writes() -> None:
    """Nobody edits the JSON by hand."""
    if importlib.util.find_spec("grafana_foundation_sdk") is None:
        missing("grafana-foundation-sdk", "no package of that name; make setup installs it with the development packages")
    done = subprocess.run([sys.executable, "-W", "error", GENERATOR, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@every_board
def test_provisioning_can_load_it(board: dict[str, Any]) -> None:
    """No numeric id and no import inputs; tagged, titled, described, not editable, of a schema that Grafana 10 knows."""
    assert not {"id", "__inputs", "__requires", "__elements"} & board.keys()
    assert board["title"].startswith("firstfault / ")
    assert board["description"]
    assert board["tags"] == ["firstfault"]
    assert board["editable"] is False
    assert board["timezone"] == "browser"
    assert board["schemaVersion"] == 39
    assert board["uid"].isascii()
    assert len(board["uid"]) <= 40


@every_board
def test_its_data_source_can_be_chosen(board: dict[str, Any]) -> None:
    """Exactly one data source variable; every panel, query, variable and annotation uses it."""
    (source,) = variables(board, "datasource").values()
    assert (source["name"], source["label"], source["query"]) == ("datasource", "Data Source", "prometheus")
    asking = [*panels(board), *(target for _, target in targets(board)), *variables(board).values(), *board["annotations"]["list"]]
    assert all(one["datasource"] == SOURCE for one in asking)


@every_board
@pytest.mark.parametrize("name", ["job", "instance"])
def test_the_firstfault_can_be_chosen(board: dict[str, Any], name: str) -> None:
    """`job` and `instance` are multiple choice with all of them as a default, from a query."""
    one = variables(board)[name]
    assert (one["label"], one["multi"], one["includeAll"], one["allValue"]) == (name, True, True, ".+")
    assert re.fullmatch(r"label_values\(firstfault_build_info(?:\{job=~\"\$job\"\})?, \w+\)", one["query"])
    assert one["current"]["value"] == "$__all"


@every_board
def test_variables_follow_the_time_that_is_shown(board: dict[str, Any]) -> None:
    """What went away can be chosen when looking back."""
    assert {one["refresh"] for one in variables(board).values()} == {2}


@every_board
def test_every_panel_says_what_it_shows(board: dict[str, Any]) -> None:
    """Title, description as a sentence, a unit that Grafana knows, at least one query; titles are unique on a dashboard."""
    titles = [panel["title"] for panel in panels(board)]
    assert len(titles) == len(set(titles))
    for panel in panels(board):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["targets"]
        assert panel["type"] in {"stat", "timeseries", "table", "bargauge"}


@every_board
def test_every_query_asks_the_chosen_firstfault(board: dict[str, Any]) -> None:
    """Each selector has matchers of job and instance, so that two clusters in one Prometheus are not added up unasked."""
    expressions = [target["expr"] for _, target in targets(board)] + [one["expr"] for one in board["annotations"]["list"]]
    for expression in expressions:
        found = selectors(expression)
        assert found
        for metric, matchers, _ in found:
            assert matchers.startswith('{job=~"$job", instance=~"$instance"'), f"{metric} in {expression}"


@every_board
def test_counters_are_asked_for_their_change(board: dict[str, Any]) -> None:
    """Counters stand in rate() or increase() only, and rate() looks back by $__rate_interval."""
    for _, target in targets(board):
        expression = target["expr"]
        for metric, _, window in selectors(expression):
            if COUNTERS.search(metric):
                assert window, f"{metric} without a range in {expression}"
        calls = re.findall(r"(\w+)\((firstfault_\w+)\{[^}]*\}\[([^\]]*)\]", expression)
        assert len(calls) == expression.count("["), f"a range outside a function in {expression}"
        for function, metric, window in calls:
            assert function in (("rate", "increase") if COUNTERS.search(metric) else ("max_over_time",))
            assert window == "$__rate_interval" or (window == "$__range" and function != "rate")


@every_board
def test_every_metric_exists(board: dict[str, Any]) -> None:
    """A renamed metric breaks here and not at three in the morning."""
    known = set(Telemetry().registry._names_to_collectors)
    used = {metric for _, target in targets(board) for metric, _, _ in selectors(target["expr"])}
    used |= {metric for one in variables(board).values() for metric, _, _ in selectors(one["query"])}
    assert used - known == set()


@every_board
def test_panels_lie_side_by_side(board: dict[str, Any]) -> None:
    """No panel covers another or stands out of the grid of 24 columns."""
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= 24 for one in places)
    for one, two in combinations(places, 2):
        apart = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"], (one, two)


@every_board
def test_it_leads_on(board: dict[str, Any]) -> None:
    """A menu of all dashboards, the console, and marks where incidents came up; the console's URL comes from its own metric."""
    menu, console = board["links"]
    assert (menu["type"], menu["tags"], menu["includeVars"], menu["keepTime"]) == ("dashboards", ["firstfault"], True, True)
    assert console["url"] == "${console:raw}/"
    assert variables(board)["console"]["query"].startswith("label_values(firstfault_console_info{")
    (marks,) = board["annotations"]["list"]
    assert marks["enable"]
    assert marks["titleFormat"] == "{{fingerprint}}"


@every_board
def test_every_failure_in_a_table_leads_to_its_runbook(board: dict[str, Any]) -> None:
    """Where a table names a fingerprint it is a link to the entry's page; where it names a job, to the job."""
    for panel in panels(board):
        links = {
            rule["matcher"]["options"]: value["value"]
            for rule in panel["fieldConfig"]["overrides"]
            for value in rule["properties"]
            if value["id"] == "links"
        }
        by = re.search(r"by \(([^)]*)\)", panel["targets"][0]["expr"])
        if panel["type"] == "table" and by and "fingerprint" in by[1]:
            assert links["fingerprint"][0]["url"] == "${console:raw}/entries/${__data.fields.fingerprint}"
        if panel["type"] == "table" and by and "training_job" in by[1] and board["uid"] != "firstfault-job":
            assert links["training_job"][0]["url"].startswith("/d/firstfault-job?")


def test_exceptions_from_the_linter_have_reasons() -> None:
    """Each exception in the `.lint` file says why, and is about a rule and dashboards that exist."""
    config = yaml.safe_load((FOLDER / ".lint").read_text())
    titles = {board["title"] for board in BOARDS.values()}
    for kind in ("exclusions", "warnings"):
        for rule, entry in config.get(kind, {}).items():
            assert re.fullmatch(r"[a-z-]+-rule", rule)
            assert len(entry["reason"]) > 20
            assert {one["dashboard"] for one in entry.get("entries", ())} <= titles


def test_every_dashboard_is_explained() -> None:
    """docs/dashboards.md says of each dashboard what it answers."""
    page = (FOLDER.parents[2] / "docs" / "dashboards.md").read_text()
    assert all(f"| `{name}` |" in page for name in NAMES)
