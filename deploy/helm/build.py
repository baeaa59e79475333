#!/usr/bin/env python3
# ruff: noqa: T201
"""Write what the chart takes from elsewhere in the project, or with --check tell whether what is committed is what this would write.

values.yaml, values.schema.json and README.md come from values.py and the daemon's own models; the rules and dashboards in files/ are
copies of deploy/prometheus and deploy/grafana, since a chart can only read its own folder.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from values import DaemonConfig, Values

from firstfault import __version__
from firstfault.config import json_schema

HERE = Path(__file__).resolve().parent
CHART = HERE / "firstfault"
DEPLOY = HERE.parent
HEAD = "# Written by deploy/helm/build.py from deploy/helm/values.py; change it there.\n"


def made() -> dict[str, str]:
    """Return each file's path in the chart, and its text."""
    files = {
        "values.yaml": HEAD + "".join(_yaml_lines(Values, 0)).lstrip("\n"),
        "values.schema.json": json.dumps(schema(), indent=1, ensure_ascii=False) + "\n",
        "README.md": reference(),
        "Chart.yaml": _chart(),
    }
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")):
        files[f"files/dashboards/{path.name}"] = path.read_text(encoding="utf-8")
    for name in ("firstfault-rules.yaml", "firstfault-incident-alerts.yaml"):
        files[f"files/{name}"] = (DEPLOY / "prometheus" / name).read_text(encoding="utf-8")
    return files


def schema() -> dict[str, Any]:
    """Return the schema of values, with the daemon's own in the place of every `config`."""
    whole = Values.model_json_schema(by_alias=True)
    daemon = _without_secrets(json.loads(json_schema()))
    definitions = {f"config.{name}": _renamed(one) for name, one in daemon.pop("$defs").items()}
    daemon = _renamed(daemon)
    whole["$defs"]["DaemonConfig"] = {key: value for key, value in daemon.items() if not key.startswith("$")}
    whole["$defs"] |= definitions
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    whole["title"] = "Values of the chart firstfault"
    return _untitled(whole)


def _without_secrets(node: Any) -> Any:
    """Leave out what would put a secret into a ConfigMap; its `_file` twin stays."""
    if isinstance(node, list):
        return [_without_secrets(one) for one in node]
    if not isinstance(node, dict):
        return node
    if "properties" in node:
        node = node | {"properties": {name: one for name, one in node["properties"].items() if not _secret(one)}}
    return {key: _without_secrets(value) for key, value in node.items()}


def _secret(field: Any) -> bool:
    options = [field, *field.get("anyOf", []), field.get("additionalProperties", {})]
    return any(isinstance(one, dict) and one.get("writeOnly") for one in options)


def _renamed(node: Any) -> Any:
    """Lead references to the daemon's definitions to where they stand here."""
    if isinstance(node, list):
        return [_renamed(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {key: value.replace("#/$defs/", "#/$defs/config.") if key == "$ref" else _renamed(value) for key, value in node.items()}


def _untitled(node: Any, names: bool = False) -> Any:
    """Drop the titles that pydantic makes of names, but no property that is called so; and formats that Helm does not know."""
    if isinstance(node, list):
        return [_untitled(one) for one in node]
    if not isinstance(node, dict):
        return node
    dropped = set() if names else {"title", "default"} | ({"format"} if node.get("format") in ("path", "password") else set())
    return {key: _untitled(value, key in ("properties", "$defs")) for key, value in node.items() if key not in dropped}


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        yield field.alias or name, field


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not DaemonConfig else None


def _default(field: FieldInfo) -> Any:
    return {} if isinstance(field.default, BaseModel) else field.default


def _yaml_lines(model: type[BaseModel], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, field in _fields(model):
        if name == "global":
            continue
        section = _section(field)
        text = field.description or (section.__doc__ if section else "")
        yield "" if depth else "\n"
        yield from (f"{indent}# {'-- ' if not at else ''}{line}\n" for at, line in enumerate(textwrap.wrap(text, 110)))
        if section:
            yield f"{indent}{name}:\n"
            yield from _yaml_lines(section, depth + 1)
        else:
            yield f"{indent}{name}: {json.dumps(_default(field), ensure_ascii=False)}\n"


def reference() -> str:
    """Return the table of all values."""
    lines = [
        "# The chart firstfault\n",
        "\n",
        "Correlator, node agent and sidecar in one chart. How to install it, step by step: `docs/deploy.md`. Every value is checked by\n",
        "`values.schema.json`; `config` takes the daemon's own settings (`docs/configuration.md`), apart from inline secrets,\n",
        "which belong into Secrets (`existingSecrets`).\n",
        "\n",
        "| value | default | what it does |\n",
        "|---|---|---|\n",
    ]
    return "".join([*lines, *_rows(Values, "")])


def _rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in _fields(model):
        section = _section(field)
        if section:
            yield from _rows(section, f"{prefix}{name}.")
        elif name != "global":
            shown = json.dumps(_default(field), ensure_ascii=False).replace("|", "\\|")
            yield f"| `{prefix}{name}` | `{shown}` | {field.description} |\n"


def _chart() -> str:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    chart["appVersion"] = chart["version"] = __version__
    return HEAD.replace("from deploy/helm/values.py; change it there", "as far as versions go") + yaml.safe_dump(
        chart, sort_keys=False, width=140
    )


def differing(files: dict[str, str]) -> list[str]:
    """Return the files that are not as they would be written, and copies of what is gone."""
    stale = [path.relative_to(CHART).as_posix() for path in (CHART / "files").rglob("*") if path.is_file()]
    return sorted({name for name in stale if name not in files} | {name for name, text in files.items() if _read(CHART / name) != text})


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(words: list[str]) -> int:
    """Return the exit code: with --check, 1 where a file differs."""
    files = made()
    if words == ["--check"]:
        for name in differing(files):
            print(f"{CHART / name} is not what deploy/helm/build.py writes; run it and commit", file=sys.stderr)
        return 1 if differing(files) else 0
    if words:
        print(__doc__, file=sys.stderr)
        return 2
    for name in differing(files):
        path = CHART / name
        if name not in files:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
