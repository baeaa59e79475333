"""Read the committed dashboards: their panels, queries and variables, and what Grafana would make of a query."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.services.real import ROOT

FOLDER = ROOT / "deploy" / "grafana" / "dashboards"
GENERATOR = ROOT / "deploy" / "grafana" / "build.py"
FILES = sorted(FOLDER.glob("*.json"))
BOARDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FILES}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the panels that show something; rows are headings."""
    for panel in board["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels", ())


def targets(board: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each query with its panel."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield panel, target


def variables(board: dict[str, Any], kind: str = "query") -> dict[str, dict[str, Any]]:
    """Return the variables of a kind by name."""
    return {one["name"]: one for one in board["templating"]["list"] if one["type"] == kind}


def filled(expression: str, **values: str) -> str:
    """Put values in the place of Grafana's variables, `.+` where all are chosen."""
    known = {"job": ".+", "instance": ".+", "__rate_interval": "1m", "__range": "10m"} | values
    text = re.sub(r"\$(\w+)", lambda found: known.get(found[1], found[0]), expression)
    assert "$" not in text, f"unknown variable in {text}"
    return text


def selectors(expression: str) -> list[tuple[str, str, str]]:
    """Return metric, matchers and range of each selector of our metrics; a metric without matchers has none."""
    return re.findall(r"\b(firstfault_\w+)(\{[^}]*\})?(\[[^\]]*\])?", expression)
