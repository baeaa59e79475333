"""The chart renders what Kubernetes takes, every variant as committed, and nothing that the daemon would refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from firstfault.config import load
from tests.deploy import charts
from tests.deploy.charts import CHART, CI, OPERATORS, ROOT, check_kubernetes, ci_values, compare, example, pods, render, text_of

GOLDEN = ROOT / "tests" / "deploy" / "golden"


@pytest.fixture(scope="module")
def renders():
    """Every variant's objects by name."""
    return {name: render(ci_values(name)) for name in CI}


@pytest.fixture(scope="module")
def examples():
    """Every operator's worked example."""
    return {operator: example(operator) for operator in OPERATORS}


def test_generated_files_are_as_generated():
    """values.yaml, its schema, the reference, rules and dashboards are what build.py writes."""
    subprocess.run([sys.executable, ROOT / "deploy" / "helm" / "build.py", "--check"], check=True)


@pytest.mark.parametrize("name", CI)
def test_a_variant_renders_as_committed(renders, name):
    """And Kubernetes knows every field of it."""
    compare(GOLDEN / f"{name}.yaml", text_of(renders[name]))
    assert check_kubernetes(renders[name]) > 0


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_worked_example_renders_as_committed(examples, operator):
    """deploy/kubernetes holds the renderings, to be copied from."""
    compare(ROOT / "deploy" / "kubernetes" / f"{operator}.yaml", text_of(examples[operator]))
    check_kubernetes(examples[operator])


def test_variants_leave_no_switch_unused(renders):
    """Together they render every kind of object that the chart has."""
    kinds = {one["kind"] for objects in renders.values() for one in objects}
    written = {line.split()[1] for path in (CHART / "templates").rglob("*.yaml") for line in path.read_text().splitlines()
               if line.startswith("kind: ") and "{{" not in line}  # fmt: skip
    assert written | {"StatefulSet", "Deployment"} <= kinds


@pytest.mark.parametrize("name", CI)
def test_rendered_configurations_load(renders, name):
    """What is in a ConfigMap is what the daemon takes."""
    texts = [one["data"]["firstfault.yaml"] for one in renders[name] if one["kind"] == "ConfigMap" and "firstfault.yaml" in one["data"]]
    assert len(texts) == sum(one["kind"] in ("StatefulSet", "Deployment", "DaemonSet") for one in renders[name])
    for text in texts:
        _load(text)


def _load(text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return load(Path(file.name)).config


@pytest.mark.parametrize("operator", OPERATORS)
def test_sidecars_start_first_and_hold_nothing_up(examples, operator):
    """In every operator's pods: an init container that goes on running, without rights, whose settings the daemon takes."""
    found = pods(examples[operator])
    assert found
    for pod in found:
        side = pod["initContainers"][0]
        assert side["restartPolicy"] == "Always"
        assert side["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert side["securityContext"]["readOnlyRootFilesystem"] is True
        environ = {one["name"]: one["value"] for one in side["env"] if "value" in one}
        config = load(None, environ).config
        folder = next(one["mountPath"] for one in side["volumeMounts"] if one["name"] == "firstfault-logs")
        assert all(glob.startswith(folder) for glob in config.sources.files[0].include)
        trainer = next(one for one in pod["containers"] if one["name"] != "firstfault")
        assert {"name": "firstfault-logs", "mountPath": folder} in trainer["volumeMounts"]
        assert {one["name"] for one in side["volumeMounts"]} <= {one["name"] for one in pod["volumes"]}
        assert float(config.limits.shutdown_secs) < pod.get("terminationGracePeriodSeconds", 30)


@pytest.mark.parametrize("name", CI)
def test_pods_run_without_rights(renders, name):
    """Read-only root, no capabilities, nobody special; the agent's exceptions are the two that it says."""
    for pod in pods(renders[name]):
        for container in pod["containers"]:
            if container["name"] == "helper":
                continue
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            privileged = rights.get("privileged", False)
            assert privileged == any(one["name"] == "kmsg" for one in container.get("volumeMounts", []))
            assert privileged or rights["capabilities"] == {"drop": ["ALL"]}
        assert not pod.get("hostPID")
        assert not pod.get("hostNetwork")
        hosts = [one for one in pod["volumes"] if "hostPath" in one] if "volumes" in pod else []
        mounts = {one["name"]: one for container in pod["containers"] for one in container.get("volumeMounts", [])}
        assert all(mounts[one["name"]].get("readOnly") for one in hosts if one["name"] != "state")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"corelator": {}}, "corelator"),
        ({"correlator": {"replica": 2}}, "replica"),
        ({"config": {"alertmanager": {"targets": [{"url": "http://a:9093", "bearer_token": "x"}]}}}, "bearer_token"),
        ({"config": {"web": {"listn": "x"}}}, "listn"),
        ({"correlator": {"config": {"incidents": {"settle_quiet_secs": -1}}}}, "settle_quiet_secs"),
        ({"image": {"digest": "sha256:1"}}, "digest"),
    ],
)
def test_unknown_values_and_inline_secrets_are_refused(values, said):
    """On install, upgrade, lint and template alike, by the schema."""
    with pytest.raises(charts.helm.HelmError, match=said):
        render(values)


def test_what_cannot_work_is_refused_with_the_way_out():
    """A claim that a Deployment would have to make."""
    with pytest.raises(charts.helm.HelmError, match="existingClaim"):
        render({"correlator": {"kind": "Deployment"}})


def test_settings_join_from_general_to_special():
    """`config` overrides the chart, a role's own `config` overrides both, and the rest stays."""
    objects = render(
        {"config": {"log": {"level": "debug"}, "web": {"lifecycle": True}}, "correlator": {"config": {"log": {"level": "error"}}}}
    )
    config = _load(next(one for one in objects if one["kind"] == "ConfigMap")["data"]["firstfault.yaml"])
    assert (config.log.level, config.log.format, config.web.lifecycle, config.web.listen) == ("error", "json", True, "0.0.0.0:9465")


def test_a_live_change_rolls_no_pods_and_another_does():
    """What the daemon takes over by itself leaves the checksum alone."""

    def checksum(**config):
        objects = render({"correlator": {"config": config}})
        return next(one for one in objects if one["kind"] == "StatefulSet")["spec"]["template"]["metadata"]["annotations"][
            "checksum/config"
        ]

    assert checksum() == checksum(incidents={"settle_quiet_secs": 20}, alerts={"hold_down_secs": 0})
    assert checksum() != checksum(limits={"shutdown_secs": 5})


def test_secrets_stay_secrets():
    """A password is only ever named by file."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    text = json.dumps(schema)
    assert '"password_file"' in text
    assert '"password":' not in text
    assert "writeOnly" not in text


def _launcher(tmp_path, torchrun: str) -> tuple[Path, dict[str, str]]:
    """Return the example's launch script and an environment whose torchrun is `torchrun`."""
    pod = pods(example("job"))[0]
    script = pod["containers"][0]["args"][0].replace("/var/log/train", str(tmp_path)).replace("/tmp/said", str(tmp_path / "said"))
    program = tmp_path / "bin" / "torchrun"
    program.parent.mkdir()
    program.write_text(f"#!/bin/bash\n{torchrun}\n", encoding="utf-8")
    program.chmod(0o755)
    file = tmp_path / "launch.sh"
    file.write_text(script, encoding="utf-8")
    return file, os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def test_the_launch_script_keeps_exit_code_and_last_words(tmp_path):
    """However much torchrun says right before it ends."""
    file, environ = _launcher(tmp_path, "seq 1 20000; echo last words >&2; exit 7")
    done = subprocess.run(["bash", file], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7
    assert done.stdout.endswith("20000\nlast words\n")
    assert (tmp_path / "agent.log").read_text() == done.stdout


def test_the_launch_script_hands_a_stop_on(tmp_path):
    """torchrun gets the signal, has time to save, and its code is the container's."""
    file, environ = _launcher(tmp_path, "trap 'echo saving; sleep 0.2; echo saved; exit 3' TERM; echo up; while :; do sleep 0.05; done")
    process = subprocess.Popen(["bash", file], env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "saving\nsaved\n"
    assert process.returncode == 3
    assert (tmp_path / "agent.log").read_text() == "up\nsaving\nsaved\n"


def test_shipped_rules_arrive_in_full(renders):
    """Every alert of deploy/prometheus is in the PrometheusRule, with the runbooks where they are said to be."""
    rule = next(one for one in renders["monitoring"] if one["kind"] == "PrometheusRule")
    shipped = [
        yaml.safe_load((ROOT / "deploy" / "prometheus" / name).read_text())
        for name in ("firstfault-rules.yaml", "firstfault-incident-alerts.yaml")
    ]
    assert [group["name"] for group in rule["spec"]["groups"]] == [group["name"] for one in shipped for group in one["groups"]]
    runbooks = [one["annotations"]["runbook_url"] for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one]
    assert any(one.startswith("https://wiki.example.org/firstfault-alerts#") for one in runbooks)
