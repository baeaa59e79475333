"""Two emulated nodes: folders as the kubelet keeps them, a kernel log and a /proc each, and an agent configured as the chart does."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.conftest import Cluster
from tests.deploy.charts import render
from tests.kernel.make import process
from tests.transport.cluster import TOKEN, Process

JOB = "pretrain-7b"
RANKS_PER_NODE = 4


class Node:
    """One machine with one pod of the job on it."""

    def __init__(self, folder: Path, number: int, uid: str, pod: str) -> None:
        self.name, self.number, self.uid, self.pod = f"node-{'ab'[number]}", number, uid, pod
        self.folder = folder / self.name
        self.pods = self.folder / "var" / "log" / "pods"
        self.container = self.pods / f"research_{pod}_{uid}" / "trainer"
        self.container.mkdir(parents=True)
        self.proc = self.folder / "proc"
        self.kmsg = self.folder / "kmsg"
        self.folder.mkdir(exist_ok=True)
        os.mkfifo(self.kmsg)
        self._kernel = os.open(self.kmsg, os.O_RDWR)
        self._records = 0

    @property
    def ranks(self) -> range:
        """Return the global ranks of its pod."""
        return range(self.number * RANKS_PER_NODE, (self.number + 1) * RANKS_PER_NODE)

    def say(self, *lines: str) -> None:
        """Write lines as the container runtime does, a long one in parts."""
        with (self.container / "0.log").open("a", encoding="utf-8") as log:
            for line in lines:
                stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
                head, rest = line[:40], line[40:]
                log.write(f"{stamp} stderr P {head}\n{stamp} stderr F {rest}\n" if rest else f"{stamp} stderr F {head}\n")

    def rotate(self) -> None:
        """Rename the log as the kubelet does; the next line begins a new file."""
        (self.container / "0.log").rename(self.container / f"0.log.{datetime.now(UTC):%Y%m%d-%H%M%S}")

    def run_process(self, pid: int, inner: int) -> None:
        """Let a process of the pod run."""
        process(self.proc, pid, inner, self.uid)

    def kernel_says(self, text: str) -> None:
        """Write a record of /dev/kmsg."""
        self._records += 1
        os.write(self._kernel, f"4,{self._records},{int(time.monotonic() * 1e6)},-;{text}\n".encode())

    def agent(self, folder: Path, correlator: str, cluster: Cluster, api_token: Path, ca: Path) -> Process:
        """Return its agent, with the configuration that the chart renders for it."""
        objects = render({"agent": {"enabled": True, "correlatorUrls": [correlator]}})
        text = next(one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"].endswith("-agent"))["data"][
            "firstfault.yaml"
        ]
        token = folder / "token"
        token.write_text(TOKEN + "\n", encoding="utf-8")
        for where, here in {
            "/var/log/pods": self.pods,
            "/dev/kmsg": self.kmsg,
            "/host/proc": self.proc,
            "/etc/firstfault/secrets/events/token": token,
        }.items():
            text = text.replace(where, str(here))
        config: dict[str, Any] = yaml.safe_load(text)
        server = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]
        config["identity"]["node_name"] = self.name
        config["identity"]["kubernetes"] |= {"api_server": server, "token_file": str(api_token), "ca_file": str(ca)}
        del config["web"], config["store"]
        return Process(folder, f"agent-{self.name}", config)

    def close(self) -> None:
        """Let go of the kernel's log."""
        os.close(self._kernel)


def pod_of(number: int) -> dict[str, Any]:
    """Return the job's pod of a number, as its operator would make it; the scheduler has placed it."""
    labels = {
        "batch.kubernetes.io/job-name": JOB,
        "batch.kubernetes.io/controller-uid": "7d0c9a52-1f4e-4b0e-9c51-0d1e6a3c0f11",
        "batch.kubernetes.io/job-completion-index": str(number),
    }
    container = {
        "name": "trainer",
        "image": "registry.example.org/train:1.0",
        "resources": {"limits": {"nvidia.com/gpu": str(RANKS_PER_NODE)}},
        "env": [{"name": "JOB_COMPLETION_INDEX", "value": str(number)}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{JOB}-{number}-x{number}y", "namespace": "research", "labels": labels,
                     "annotations": {"batch.kubernetes.io/job-completion-index": str(number)}},
        "spec": {"nodeName": f"node-{'ab'[number]}", "restartPolicy": "Never", "containers": [container]},
    }  # fmt: skip


def start_pods(cluster: Cluster, folder: Path) -> list[Node]:
    """Create the job's pods in the API server, and the machines that they run on."""
    nodes = []
    cluster.kubectl("create", "namespace", "research")
    for number in range(2):
        described = pod_of(number)
        made = json.loads(cluster.kubectl("create", "-f", "-", "-o", "json", text=json.dumps(described)).stdout)
        name, uid = made["metadata"]["name"], made["metadata"]["uid"]
        status = {
            "status": {"phase": "Running", "startTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "podIP": f"10.0.0.{number + 5}"}
        }
        cluster.kubectl("-n", "research", "patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
        nodes.append(Node(folder, number, uid, name))
    return nodes
