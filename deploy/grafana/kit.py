"""Short words for the panels, variables and links that all dashboards of firstfault share, over Grafana's own SDK."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, table, timeseries
from grafana_foundation_sdk.builders import stat as stat_builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
OF_US = 'job=~"$job", instance=~"$instance"'  # which of several firstfaults; in every query
TAG = "firstfault"
SCHEMA_VERSION = 39  # what most charts of prometheus-community carry; Grafana 10 and later migrate it by themselves
BAD = ((None, "green"), (1, "red"))
WARN = ((None, "green"), (1, "orange"))
YES_NO = {"1": ("yes", "green"), "0": ("no", "red")}
IDENTITY = (
    ("namespace", "Namespace"),
    ("training_job", "Job"),
    ("fingerprint", "Failure"),
    ("category", "Category"),
    ("severity", "Severity"),
    ("Value", "Open"),
)
STAT_HEIGHT, PANEL_HEIGHT = 4, 8
RUNBOOK = {"title": "Runbook", "url": "${console:raw}/entries/${__data.fields.fingerprint}", "targetBlank": True}
IN_CONSOLE = {"title": "Open incidents in the console", "url": "${console:raw}/", "targetBlank": True}
TO_JOB = {
    "title": "This job",
    "url": "/d/firstfault-job?var-datasource=${datasource}&var-namespace=${__data.fields.namespace}"
    "&var-training_job=${__data.fields.training_job}&${__url_time_range}",
}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel; `M` in it stands for the matchers that choose a firstfault."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel with its size; widths of a row add up to 24."""

    kind: Literal["stat", "graph", "bars", "table", "top"]
    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 12
    thresholds: tuple[tuple[float | None, str], ...] = ()  # from this value on, this colour
    links: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by the column they are on
    columns: tuple[tuple[str, str], ...] = ()  # of a table: field and heading, in order
    units: dict[str, str] = field(default_factory=dict)  # of columns that differ
    words: dict[str, tuple[str, str]] = field(default_factory=dict)  # of a stat: value -> word and colour


def q(expr: str, legend: str = "") -> Query:
    """Return a query."""
    return Query(expr, legend)


def stat(title: str, text: str, unit: str, expr: str, **more: Any) -> Panel:
    """Return a panel that shows one number; six stand in a row."""
    return Panel("stat", title, text, unit, (q(expr),), 4, **more)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    text: str
    rows: tuple[Row, ...]
    variables: tuple[tuple[str, str], ...] = ()  # further ones: name and query
    mark: str = "sum by (fingerprint, severity) (increase(firstfault_incidents_total{M}[$__rate_interval])) > 0"  # when annotations stand


def build(board: Board) -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    made = dashboard.Dashboard(board.title).uid(board.uid).description(board.text).tags([TAG]).readonly()
    made = made.timezone("browser").time("now-6h", "now").refresh("1m").tooltip(models.DashboardCursorSync.CROSSHAIR)
    for variable in _variables(board):
        made = made.with_variable(variable)
    made = made.link(_siblings()).link(_console()).annotation(_marks(board))
    for number, row in enumerate(board.rows, 1):
        made = made.with_row(dashboard.Row(row.title).id(100 * number))
        for place, panel in enumerate(row.panels, 1):
            made = made.with_panel(_panel(panel).id(100 * number + place))
    plain: dict[str, Any] = json.loads(JSONEncoder().encode(made.build()))
    plain["schemaVersion"] = SCHEMA_VERSION
    plain.pop("style", None)  # gone since Grafana 10
    for variable in plain["templating"]["list"]:
        variable.pop("id", None)  # the SDK gives all of them the same
    # The SDK's annotations know no words, though Prometheus' have them.
    plain["annotations"]["list"][0] |= {"titleFormat": "{{fingerprint}}", "textFormat": "severity {{severity}}", "step": "60s"}
    return plain


def matched(expr: str) -> str:
    """Return an expression with the matchers that `M` stands for."""
    return expr.replace("{M}", "{" + OF_US + "}").replace("{M,", "{" + OF_US + ",")


# variables, links, annotations


def _variables(board: Board) -> Iterable[Any]:
    yield dashboard.DatasourceVariable("datasource").label("Data Source").type("prometheus")
    yield _choice("job", "label_values(firstfault_build_info, job)")
    yield _choice("instance", 'label_values(firstfault_build_info{job=~"$job"}, instance)')
    console = _variable("console", 'label_values(firstfault_console_info{job=~"$job", instance=~"$instance"}, url)')
    yield console.hide(models.VariableHide.HIDE_VARIABLE)
    for name, query in board.variables:
        yield _variable(name, query).label(name)


def _choice(name: str, query: str) -> Any:
    return (
        _variable(name, query)
        .label(name)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(models.VariableOption(True, "All", "$__all"))
    )


def _variable(name: str, query: str) -> Any:
    made = dashboard.QueryVariable(name).query(query).datasource(SOURCE).refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return made.sort(models.VariableSort.ALPHABETICAL_ASC)


def _siblings() -> Any:
    kind = models.DashboardLinkType.DASHBOARDS
    return dashboard.DashboardLink("firstfault").type(kind).tags([TAG]).as_dropdown(True).include_vars(True).keep_time(True)


def _console() -> Any:
    made = dashboard.DashboardLink("Console").type(models.DashboardLinkType.LINK).url("${console:raw}/").target_blank(True)
    return made.tooltip("Incidents with their evidence, and the runbooks").icon("external link")


def _marks(board: Board) -> Any:
    """Mark when incidents settled; where a job is chosen, when one of its incidents came up."""
    made = dashboard.AnnotationQuery().name("Incidents").datasource(SOURCE).enable(True).icon_color("red")
    return made.expr(matched(board.mark))


# panels


def _panel(panel: Panel) -> Any:
    made = {"stat": _stat, "graph": _graph, "bars": _bars, "table": _table, "top": _top}[panel.kind](panel)
    made = made.title(panel.title).description(panel.text).unit(panel.unit).datasource(SOURCE).span(panel.width)
    made = made.height(STAT_HEIGHT if panel.kind == "stat" else PANEL_HEIGHT)
    for letter, query in zip(string.ascii_uppercase, panel.queries, strict=False):
        made = made.with_target(_target(letter, query, panel.kind))
    if panel.unit == "short":
        made = made.decimals(0)  # counts; increase() extrapolates 3 to 3.08
    return made.thresholds(_thresholds(panel.thresholds)) if panel.thresholds else made


def _target(letter: str, query: Query, kind: str) -> Any:
    made = prometheus.Dataquery().ref_id(letter).datasource(SOURCE).expr(matched(query.expr)).legend_format(query.legend or "__auto")
    if kind == "table":
        return made.instant().format(prometheus_models.PromQueryFormat.TABLE)
    if kind in ("stat", "top"):
        return made.instant()
    return made.range().exemplar("incidents_total" in query.expr or "verdict_seconds" in query.expr)


def _thresholds(steps: Sequence[tuple[float | None, str]]) -> Any:
    made = [models.Threshold(value=value, color=color) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


def _stat(panel: Panel) -> Any:
    reduced = common.ReduceDataOptions().calcs(["lastNotNull"])
    made = stat_builder.Panel().graph_mode(common_models.BigValueGraphMode.NONE).reduce_options(reduced)
    colour = common_models.BigValueColorMode.VALUE if panel.thresholds or panel.words else common_models.BigValueColorMode.NONE
    made = made.color_mode(colour)
    if panel.words:
        options = {value: models.ValueMappingResult(text=word, color=color) for value, (word, color) in panel.words.items()}
        made = made.mappings([models.ValueMap(options=options)])
    return made


def _graph(panel: Panel) -> Any:
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.LIST).placement(common_models.LegendPlacement.BOTTOM)
    made = timeseries.Panel().legend(legend.show_legend(True)).fill_opacity(10).min(0)
    return made.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI).sort(common_models.SortOrder.DESCENDING))


def _bars(panel: Panel) -> Any:
    stacked = common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A")
    return _graph(panel).draw_style(common_models.GraphDrawStyle.BARS).fill_opacity(70).stacking(stacked)


def _top(panel: Panel) -> Any:
    made = bargauge.Panel().orientation(common_models.VizOrientation.HORIZONTAL).display_mode(common_models.BarGaugeDisplayMode.GRADIENT)
    return made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).min(0)


def _table(panel: Panel) -> Any:
    made = table.Panel().show_header(True)
    names = [name for name, _ in panel.columns]
    if len(panel.queries) > 1:
        made = made.with_transformation(models.DataTransformerConfig("merge", options={}))
    made = made.with_transformation(models.DataTransformerConfig("filterFieldsByName", options={"include": {"names": names}}))
    order = {name: place for place, name in enumerate(names)}
    made = made.with_transformation(
        models.DataTransformerConfig("organize", options={"indexByName": order, "renameByName": {}, "excludeByName": {}})
    )
    for name, heading in panel.columns:
        made = made.override_by_name(name, _column(panel, name, heading))
    return made


def _column(panel: Panel, name: str, heading: str) -> list[models.DynamicConfigValue]:
    found = [models.DynamicConfigValue("displayName", heading)]
    if name in panel.links:
        found.append(models.DynamicConfigValue("links", panel.links[name]))
    if name in panel.units:
        found.append(models.DynamicConfigValue("unit", panel.units[name]))
    return found
