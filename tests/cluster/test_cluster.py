"""A real API server takes every variant of the chart and every worked example, and grants agents reading and nothing else."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.deploy.charts import CHART, CI, EXAMPLES, OPERATORS, ROOT


@pytest.mark.parametrize("name", CI)
def test_helm_installs_the_variant(cluster, name):
    """With server-side validation of every field; an upgrade to the same is taken too, and keeps the token."""
    space = f"ci-{name}"
    values = ("--values", str(CHART / "ci" / f"{name}-values.yaml"))
    cluster.helm("install", "ff", str(CHART), "--namespace", space, "--create-namespace", *values)
    token = cluster.kubectl("-n", space, "get", "secret", "-l", "app.kubernetes.io/component=events", "-o", "yaml").stdout
    told = cluster.helm("upgrade", "ff", str(CHART), "--namespace", space, *values).stdout
    assert "Check first:" in told
    again = cluster.kubectl("-n", space, "get", "secret", "-l", "app.kubernetes.io/component=events", "-o", "yaml").stdout
    assert [one["data"] for one in yaml.safe_load(token)["items"]] == [one["data"] for one in yaml.safe_load(again)["items"]]
    strict = cluster.helm("get", "manifest", "ff", "--namespace", space).stdout
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-n", space, "-f", "-", text=strict)
    cluster.helm("uninstall", "ff", "--namespace", space)


def test_a_wrong_field_would_be_seen(cluster):
    """The validation that the other tests rest on refuses an unknown field."""
    strict = cluster.helm("template", "ff", str(CHART)).stdout.replace("restartPolicy: Never", "restartPolicies: Never")
    assert "restartPolicies" in strict
    refused = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=strict, check=False)
    assert refused.returncode != 0
    assert "restartPolicies" in refused.stderr


def test_helm_finds_nothing_to_complain_of(cluster):
    """helm lint, strictly, for every variant and for the examples."""
    for name in CI:
        lint = cluster.helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / f"{name}-values.yaml"))
        assert "0 chart(s) failed" in lint.stdout
    cluster.helm("lint", str(EXAMPLES))


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_operators_kinds_take_the_worked_example(cluster, operator):
    """Their own CRDs check it, unknown fields included; what is copied from deploy/kubernetes is the same."""
    space = f"ex-{operator}"
    cluster.kubectl("create", "namespace", space)
    rendered = cluster.helm("template", "examples", str(EXAMPLES), "--namespace", space, "--set", f"operator={operator}").stdout
    cluster.kubectl("apply", "--validate=strict", "-f", "-", text=rendered)
    kinds = [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(rendered) if one]
    for kind, name in kinds:
        group = next(one["apiVersion"] for one in yaml.safe_load_all(rendered) if one and one["kind"] == kind)
        plural = f"{kind.lower()}.{group.split('/')[1]}.{group.split('/')[0]}" if "/" in group else kind.lower()
        stored = json.loads(cluster.kubectl("-n", space, "get", plural, name, "-o", "json").stdout)
        if kind in ("Service", "TrainJob"):
            continue
        assert '"restartPolicy": "Always"' in json.dumps(stored), f"{kind} lost the native sidecar"
    committed = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / f"{operator}.yaml").read_text(encoding="utf-8")))
    assert sorted(kinds) == sorted((one["kind"], one["metadata"]["name"]) for one in committed)


def test_agents_may_read_and_nothing_else(cluster):
    """The service account of the agents, asked of the authorizer itself."""
    cluster.helm("install", "rights", str(CHART), "--namespace", "rights", "--create-namespace", "--set", "agent.enabled=true")
    agent = "--as=system:serviceaccount:rights:rights-firstfault-agent"
    correlator = "--as=system:serviceaccount:rights:rights-firstfault-correlator"

    def may(who: str, verb: str, what: str, *more: str) -> bool:
        what, _, part = what.partition("/")
        more += (f"--subresource={part}",) if part else ()
        return cluster.kubectl("auth", "can-i", verb, what, who, *more, check=False).stdout.strip() == "yes"

    assert all(may(agent, verb, what, "--all-namespaces") for verb in ("get", "list", "watch") for what in ("pods", "events"))
    assert may(agent, "watch", "nodes")
    refused = [(verb, what) for verb in ("get", "list") for what in ("secrets", "configmaps", "pods/log")]
    refused += [(verb, what) for verb in ("create", "update", "patch", "delete") for what in ("pods", "events", "nodes", "pods/exec")]
    assert not any(may(agent, verb, what, "--all-namespaces") for verb, what in refused)
    assert not any(may(correlator, verb, what, "--all-namespaces") for verb in ("get", "list", "create") for what in ("pods", "secrets"))
    cluster.helm("upgrade", "rights", str(CHART), "--namespace", "rights", "--set", "agent.enabled=true,agent.watchPods=false")
    assert not may(agent, "list", "pods", "--all-namespaces")
    cluster.helm("uninstall", "rights", "--namespace", "rights")


def test_a_replica_of_the_render_in_helm_4_is_that_of_helm_3(cluster):
    """Both versions of Helm make the same objects of the chart."""
    from tests.deploy.charts import ci_values, render, text_of

    for name in CI:
        text = cluster.helm(
            "template", "ff", str(CHART), "--namespace", "watch", "--api-versions", "monitoring.coreos.com/v1",
            "--values", str(CHART / "ci" / f"{name}-values.yaml"),
        ).stdout  # fmt: skip
        ours = {json.dumps(one, sort_keys=True) for one in yaml.safe_load_all(text_of(render(ci_values(name))))}
        theirs = {json.dumps(one, sort_keys=True) for one in yaml.safe_load_all(text_of([x for x in yaml.safe_load_all(text) if x]))}
        assert ours == theirs
