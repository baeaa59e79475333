"""Render the charts as Helm does, and take the renderings apart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

helm = pytest.importorskip("helm_python", reason="Helm's library has no wheel for this machine; `make test-kubernetes` uses its program")

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "firstfault"
EXAMPLES = ROOT / "deploy" / "helm" / "training-examples"
CI = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
OPERATORS = ("job", "jobset", "trainjob", "pytorchjob", "volcano", "ray")
KUBERNETES = "1.36"
# Of operators, so that Kubernetes' own schemas do not have them; the real API server checks them in `make test-kubernetes`.
FOREIGN = ("monitoring.coreos.com/", "jobset.x-k8s.io/", "trainer.kubeflow.org/", "kubeflow.org/", "batch.volcano.sh/", "ray.io/")


def ci_values(name: str) -> dict[str, Any]:
    """Return the values of one variant."""
    return yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8")) or {}


def render(values: dict[str, Any], chart: Path = CHART, name: str = "ff", namespace: str = "watch") -> list[dict[str, Any]]:
    """Return the objects of a rendering, in the order of their files."""
    options = {"name": name, "namespace": namespace, "api_versions": ["monitoring.coreos.com/v1"]}
    with helm.Chart.load(chart) as loaded:
        loaded.validate_schema(values)
        # The library's own `render` takes no API versions, although what it calls does.
        files = json.loads(helm._native.call_string("helm_render", loaded._raw(), json.dumps(values), json.dumps(options)))
    texts = [text for path, text in sorted(files.items()) if path.endswith(".yaml")]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def example(operator: str) -> list[dict[str, Any]]:
    """Return the objects of one operator's worked example."""
    return render({"operator": operator}, EXAMPLES, name="examples", namespace="research")


def text_of(objects: list[dict[str, Any]]) -> str:
    """Write objects as the committed renderings hold them."""
    objects = [_folded(one) for one in objects]
    return "---\n".join(yaml.safe_dump(one, sort_keys=False, width=10_000, allow_unicode=True) for one in objects)


def _folded(one: dict[str, Any]) -> dict[str, Any]:
    """Leave out what changes by itself (a token) or with other files that are compared where they belong (boards, rules)."""
    if one["kind"] == "Secret":
        return one | {"data": dict.fromkeys(one["data"], "...")}
    if one["metadata"]["name"].endswith("-dashboards"):
        return one | {"data": dict.fromkeys(one["data"], "...")}
    if one["kind"] == "PrometheusRule":
        return one | {"spec": {"groups": [group["name"] for group in one["spec"]["groups"]]}}
    return one


def check_kubernetes(objects: list[dict[str, Any]]) -> int:
    """Hold objects to Kubernetes' own schemas, unknown fields included; return how many it has a schema for."""
    known = [one for one in objects if not one["apiVersion"].startswith(FOREIGN)]
    for one in known:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    return len(known)


def compare(path: Path, text: str) -> None:
    """Compare with a committed rendering; UPDATE=1 writes it."""
    if os.environ.get("UPDATE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path} is not what the chart renders; UPDATE=1 pytest tests/deploy/test_chart.py"


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the specs of all pods in objects, however deep their templates lie."""
    found = []
    todo: list[Any] = list(objects)
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if isinstance(one.get("containers"), list):
                found.append(one)
            todo += one.values()
        elif isinstance(one, list):
            todo += one
    return found
