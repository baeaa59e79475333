"""Small entries for tests: one that passes every check, and ways to spoil it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

ENTRY: dict[str, Any] = {
    "fingerprint": "widget-jam",
    "title": "Widget jammed",
    "area": "host-system",
    "category": "hardware",
    "severity": "critical",
    "tags": ["widget"],
    "maturity": "sandbox",
    "stage": ["training"],
    "written_by": ["service"],
    "summary": "The widget of one host jammed.",
    "looks_like": "One rank stops and says so.",
    "mechanism": [{"cause": "Dust got into the widget.", "symptoms": ["jam"]}],
    "does_not_establish": "Where the dust came from.",
    "hardware_or_software": "Hardware: dusty widget.",
    "affected": ["hosts with widgets"],
    "confirm": [{"do": "Look at it.", "command": "widgetctl status"}],
    "fix": {"summary": "Clean it.", "steps": [{"do": "Clean it.", "command": "widgetctl clean"}]},
    "time_to_fix": "5 minutes",
    "verify": {"command": "grep -c jammed LOG", "absent_for": "24h"},
    "prevention": ["Filters."],
    "scale": "The same everywhere.",
    "recurrence": "When filters are old.",
    "inference": "The same. At each start.",
    "related": [],
    "references": ["https://docs.example.org/widget"],
    "views": {"oncall": "Clean it.", "engineer": "Dust.", "executive": "Dust, gone."},
    "symptoms": [
        {
            "id": "jam",
            "signature": True,
            "role": "initiating",
            "any": [r"widget (?P<unit>\d+) jammed"],
            "captures": {"unit": "int"},
            "not": ["retrying"],
            "versions": "widgetd 1-3",
        }
    ],
    "match": [
        {"line": "[rank3]: widget 7 jammed", "symptom": "jam", "captures": {"unit": 7}, "rank": 3},
        {"line": "widgetd: widget 12 jammed", "symptom": "jam"},
    ],
    "no_match": [{"line": "INFO widget 7 jammed, retrying", "why": "handled"}, {"line": "INFO no widget jammed", "why": "all is well"}],
}


def entry(**changes: Any) -> dict[str, Any]:
    """Return a copy of the good entry with some fields replaced; None removes one."""
    made = copy.deepcopy(ENTRY)
    for name, value in changes.items():
        if value is None:
            made.pop(name)
        else:
            made[name] = value
    return made


def symptom(**changes: Any) -> dict[str, Any]:
    """Return a copy of the good entry's symptom with some fields replaced; None removes one."""
    made = {**copy.deepcopy(ENTRY["symptoms"][0]), **changes}
    return {name: value for name, value in made.items() if value is not None}


def twice(text: str, **parts: Any) -> list[dict[str, Any]]:
    """Return two examples of a text, since one text said twice proves no more than said once."""
    return [{"line": text, "symptom": "jam", **parts}, {"line": f"[rank1]: {text}", "symptom": "jam", **parts}]


def quiet(*texts: str) -> list[dict[str, Any]]:
    """Return near misses."""
    return [{"line": text, "why": "x"} for text in texts]


def write(root: Path, *entries: dict[str, Any]) -> Path:
    """Write entries below `root` where they belong and return `root`."""
    for one in entries:
        write_text(root, one, yaml.safe_dump(json.loads(json.dumps(one)), sort_keys=False))
    return root


def write_text(root: Path, one: dict[str, Any], text: str) -> Path:
    """Write one entry's file with that text."""
    path = root / one["area"] / f"{one['fingerprint']}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
