"""The watch against a real API server: an agent's account, its own node's pods, and what Kubernetes says of them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firstfault.clock import SystemClock
from firstfault.sources.base import Handover, Read, SilentObserver
from firstfault.sources.kubernetes.api import Access
from firstfault.sources.kubernetes.book import PodBook
from firstfault.sources.kubernetes.source import KubernetesSource, Options

SPACE = "watched"
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: watcher}
rules:
  - {apiGroups: [""], resources: [pods, events], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: watcher}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: watcher}
subjects:
  - {kind: ServiceAccount, name: watcher, namespace: watched}
"""


class Observer(SilentObserver):
    def __init__(self) -> None:
        self.errors: list[str] = []

    def source_error(self, source: str, path: str, error: str) -> None:
        self.errors.append(error)


async def until(condition: Callable[[], bool], within: float = 90.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.02)


def described(name: str, node: str) -> str:
    """Return a pod of an indexed Job, as its controller makes it."""
    labels = {"batch.kubernetes.io/job-name": "llm", "batch.kubernetes.io/controller-uid": "u-1"}
    labels["batch.kubernetes.io/job-completion-index"] = name[-1]
    path = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    container = {"name": "pytorch", "image": "x", "env": [variable], "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    meta = {"name": name, "namespace": SPACE, "labels": labels}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": node, "containers": [container]}})


@pytest.fixture
def account(cluster, tmp_path):
    """A service account without rights, with its token in a file."""
    cluster.kubectl("create", "namespace", SPACE)
    cluster.kubectl("-n", SPACE, "create", "serviceaccount", "watcher")
    token = tmp_path / "token"
    token.write_text(cluster.kubectl("-n", SPACE, "create", "token", "watcher").stdout)
    url = re.search(r"https://127\.0\.0\.1:\d+", Path(cluster.kubeconfig).read_text())
    assert url
    yield Access(url[0], token, Path(cluster.folder) / "certs" / "apiserver.crt")
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


async def test_an_agent_sees_the_pods_of_its_node(cluster, account):
    """Rights that come late, pods of this node alone, the end of a container, a node that is lost, a deletion."""
    observer, handover = Observer(), Handover()
    book = PodBook(SystemClock(), 60.0)
    source = KubernetesSource(Options(account, "gpu-b"), book, handover, observer)

    async def kubectl(*words: str, text: str | None = None) -> str:
        return (await asyncio.to_thread(cluster.kubectl, *words, text=text)).stdout

    def said() -> list[str]:
        while (item := handover.get(0.0)) is not None:
            if isinstance(item, Read):
                texts.append(item.batch.data.decode())
        return texts

    texts: list[str] = []
    source.start()
    try:
        await until(lambda: any("get, list and watch" in error for error in observer.errors))
        await kubectl("apply", "-f", "-", text=RIGHTS)
        await until(lambda: book.listed)
        await kubectl("apply", "-f", "-", text=described("llm-0", "gpu-a"))
        await kubectl("apply", "-f", "-", text=described("llm-1", "gpu-b"))
        await until(lambda: book.by_name(SPACE, "llm-1") is not None)
        assert book.by_name(SPACE, "llm-0") is None
        pod = book.by_name(SPACE, "llm-1")
        assert pod is not None
        labels = book.labels_for(f"/var/log/pods/{SPACE}_llm-1_{pod.uid}/pytorch/0.log")
        assert labels is not None
        assert (labels["env.JOB_COMPLETION_INDEX"], labels["firstfault.machine"], pod.job.job, pod.job.run, pod.gpus) == (
            "1", "gpu-b", "llm", "u-1", 2,
        )  # fmt: skip
        ended = {"exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-11-30T11:00:00Z", "finishedAt": "2026-11-30T11:02:03Z"}
        state: dict[str, Any] = {"name": "pytorch", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        state["state"] = {"terminated": ended}
        patch = json.dumps({"status": {"phase": "Running", "containerStatuses": [state]}})
        await kubectl("-n", SPACE, "patch", "pod", "llm-1", "--subresource=status", "--type=merge", "-p", patch)
        await until(lambda: any("OOMKilled" in text for text in said()))
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "gpu-b.1", "namespace": "default"}, "type": "Normal"}
        event |= {"involvedObject": {"kind": "Node", "name": "gpu-b"}, "reason": "NodeNotReady"}
        event |= {"message": "Node gpu-b status is now: NodeNotReady"}
        await kubectl("create", "-f", "-", text=json.dumps(event))
        await until(lambda: any("NodeNotReady" in text for text in said()))
        assert len(said()) == 2
        await kubectl("-n", SPACE, "delete", "pod", "llm-1", "--force", "--grace-period=0")
        await until(lambda: not book.uids())
    finally:
        await asyncio.to_thread(source.stop)
