"""The watch keeps its picture of pods through hang-ups, refusals and lost threads, and says once what was done to a pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from firstfault.clock import SystemClock
from firstfault.errors import InputError
from firstfault.model import JobKey
from firstfault.sources.base import Handover, Read, SilentObserver
from firstfault.sources.kubernetes import watch
from firstfault.sources.kubernetes.api import Access, access
from firstfault.sources.kubernetes.book import PodBook
from firstfault.sources.kubernetes.source import KubernetesSource, Options
from firstfault.text.identity import identify
from tests.pods.standin import StandIn, pod


class Observer(SilentObserver):
    def __init__(self) -> None:
        self.errors: list[str] = []
        self.recovered = 0

    def source_error(self, source: str, path: str, error: str) -> None:
        self.errors.append(error)

    def source_recovered(self, source: str, path: str) -> None:
        self.recovered += 1


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(watch, "FIRST_PAUSE_SECS", 0.01)


async def until(condition: Callable[[], bool], within: float = 30.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


class Watching:
    def __init__(self, server: StandIn, node: str = "gpu-b", token: Path | None = None, positions=()) -> None:
        self.observer, self.handover = Observer(), Handover()
        self.book = PodBook(SystemClock(), 5.0)
        self.source = KubernetesSource(Options(Access(server.url, token), node), self.book, self.handover, self.observer)
        self.source.start(positions)

    def said(self) -> list[Read]:
        found = []
        while (item := self.handover.get(0.0)) is not None:
            found.append(item)
        return [one for one in found if isinstance(one, Read)]


@asynccontextmanager
async def watching(server: StandIn, **more):
    one = Watching(server, **more)
    try:
        yield one
    finally:
        await asyncio.to_thread(one.source.stop)


async def test_pods_come_change_and_go():
    """A list in pages, then a watch from its version; a pod that is deleted is remembered as ended."""
    async with StandIn().listening() as server:
        for number in range(5):
            await server.put("pods", "ADDED", pod(f"llm-{number}", f"0000000{number}"))
        async with watching(server) as one:
            await until(lambda: len(one.book.uids()) == 5)
            assert server.asked[0]["fieldSelector"] == "spec.nodeName=gpu-b"
            await server.put("pods", "ADDED", pod("llm-9", "00000009"))
            await until(lambda: len(one.book.uids()) == 6)
            await server.put("pods", "DELETED", pod("llm-0", "00000000"))
            await until(lambda: len(one.book.uids()) == 5)
            gone = one.book.by_uid("00000000")
            assert gone is not None
            assert gone.until is not None
            assert one.source.status().caught_up


async def test_a_hang_up_goes_on_from_the_last_version():
    """The server ends watches by itself; nothing is listed again."""
    async with StandIn().listening() as server, watching(server) as one:
        await until(lambda: server.watches() > 0)
        await server.put("pods", "ADDED", pod("llm-0", "00000000"))
        await until(lambda: len(one.book.uids()) == 1)
        before = server.watches()
        server.hang_up.add("pods")
        await until(lambda: server.watches() > before)
        await server.put("pods", "ADDED", pod("llm-1", "00000001"))
        await until(lambda: len(one.book.uids()) == 2)
        assert server.lists() == 1


async def test_a_version_that_is_gone_leads_to_a_new_list():
    """After 410 Gone the pods are listed again, and one that went away unseen is gone."""
    async with StandIn().listening() as server:
        await server.put("pods", "ADDED", pod("llm-0", "00000000"))
        async with watching(server) as one:
            await until(lambda: len(one.book.uids()) == 1 and server.watches() > 0)
            server.objects["pods"].clear()
            server.version += 10
            server.forgotten = server.version
            before = server.lists()
            server.hang_up.add("pods")
            await until(lambda: not one.book.uids() and server.lists() > before)
            assert one.observer.errors == []


async def test_a_refusal_is_told_once_and_tried_again(tmp_path):
    """403 says which rights are missing; when it works again that is told, and the token is read anew for each request."""
    token = tmp_path / "token"
    token.write_text("first\n")
    async with StandIn().listening() as server:
        server.refuse = [(403, "pods is forbidden")] * 6
        async with watching(server, token=token) as one:
            await until(lambda: any("get, list and watch" in error for error in one.observer.errors))
            token.write_text("second\n")
            await until(lambda: one.observer.recovered > 0 and server.watches() > 0)
            assert len(set(one.observer.errors)) == len(one.observer.errors)
            assert server.tokens[0] == "Bearer first"
            assert server.tokens[-1] == "Bearer second"


async def test_labels_lead_from_the_path_of_a_log_to_its_job():
    """A log waits for its pod to become known, and then has the labels of the pod and the container's variables."""
    one = pod("llm-node-0-1-x2x9k", "0000000a")
    one["spec"]["containers"][0]["env"] = [
        {"name": "PET_NPROC_PER_NODE", "value": "2"},
        {
            "name": "PET_NODE_RANK",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}},
        },
        {"name": "HF_TOKEN", "value": "secret"},
    ]
    one["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "1", "kubectl.kubernetes.io/last-applied": "secret"}
    path = "/var/log/pods/ml_llm-node-0-1-x2x9k_0000000a/pytorch/0.log"
    async with StandIn().listening() as server, watching(server) as watched:
        await until(lambda: server.watches() > 0)
        assert watched.book.labels_for(path) is None
        await server.put("pods", "ADDED", one)
        await until(lambda: bool(watched.book.labels_for(path)))
        labels = watched.book.labels_for(path)
        assert "secret" not in str(labels)
        assert (labels["env.PET_NODE_RANK"], labels["env.PET_NPROC_PER_NODE"]) == ("1", "2")
        assert watched.book.labels_for("/var/log/train/rank0.log") == {}
        assert watched.book.labels_for("/var/log/containers/llm-node-0-1-x2x9k_ml_pytorch-0123456789abcdef.log") == labels
        known = watched.book.by_uid("0000000a")
        assert known is not None
        assert (known.job, known.trains, known.gpus) == (JobKey("ml", "llm", "u-1", 0), True, 2)


async def test_ends_of_containers_and_evictions_are_said_once():
    """Status, condition and event of one end are one statement, also after a restart; scheduling is none."""
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-30T11:02:03Z"}
    killed = pod("llm-0", "0000000b")
    killed["status"]["containerStatuses"] = [
        {"name": "pytorch", "restartCount": 1, "lastState": {"terminated": ended}, "state": {"running": {}}}
    ]
    evicted = pod("llm-1", "0000000c")
    evicted["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}
    event = {"involvedObject": {"kind": "Pod", "uid": "0000000c"}, "reason": "Evicted", "message": "The node was low on resource: memory."}
    async with StandIn().listening() as server:
        await server.put("pods", "ADDED", killed)
        await server.put("pods", "ADDED", evicted)
        async with watching(server, node="") as one:
            await until(lambda: one.handover.depth()[0] >= 2 and server.watches() > 0)
            await server.put("events", "ADDED", event | {"metadata": {"uid": "e-1", "name": "e1"}})
            unscheduled = {"reason": "FailedScheduling", "message": "0/2 nodes are available", "metadata": {"uid": "e-2", "name": "e2"}}
            await server.put("events", "ADDED", event | unscheduled)
            down = {"involvedObject": {"kind": "Node", "name": "gpu-b"}, "reason": "NodeNotReady", "metadata": {"uid": "e-3", "name": "e3"}}
            down |= {"message": "Node gpu-b status is now: NodeNotReady", "lastTimestamp": "2026-11-30T11:02:05Z"}
            await server.put("events", "ADDED", down)
            await until(lambda: one.handover.depth()[0] >= 3)
            said = one.said()
        texts = [read.batch.data.decode() for read in said]
        assert "2026-11-30T11:02:03Z container pytorch of pod llm-0 ended with exit code 137 (reason: OOMKilled, launch 0)\n" in texts
        assert sum("low on resource" in text for text in texts) == 1
        assert sum("NodeNotReady" in text for text in texts) == 1  # the evicted pod had ended long before
        assert len(texts) == 3
        (ended_one,) = (read for read in said if b"pod llm-0 ended" in read.batch.data)
        found = identify(ended_one.batch.stream)
        assert (found.job, found.who.node, found.who.agent) == (JobKey("ml", "llm", "u-1", 0), "llm-0", True)
        async with watching(server, node="", positions=[read.position.to_json() for read in said]) as again:
            await until(lambda: len(again.book.uids()) == 2 and server.watches() > 1)
            assert again.said() == []


def test_where_the_api_server_is(tmp_path):
    """In a cluster it is where every pod is told it is; elsewhere it has to be named."""
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert access(None, tmp_path / "token", None, inside).url == "https://[fd00::1]:6443"
    assert access("https://api:6443/", tmp_path / "token", None, inside).url == "https://api:6443"
    with pytest.raises(InputError, match="give api_server"):
        access(None, tmp_path / "token", None, {})


async def test_an_object_that_cannot_be_understood_does_not_end_the_watch():
    """A pod of an odd shape is told, and the next one is taken."""
    odd = pod("llm-0", "0000000d")
    odd["status"]["containerStatuses"] = [{"name": "pytorch", "restartCount": "many", "state": {}}]
    async with StandIn().listening() as server, watching(server) as one:
        await until(lambda: server.watches() > 0)
        await server.put("pods", "ADDED", odd)
        await server.put("pods", "ADDED", pod("llm-1", "0000000e"))
        await until(lambda: "0000000e" in one.book.uids())
        assert any("llm-0: cannot be understood" in error for error in one.observer.errors)


async def test_a_receiver_that_takes_no_more_ends_the_thread():
    """At the end of the process the hand-over is closed first."""
    ended = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-30T11:02:03Z"}
    failed = pod("llm-0", "0000000f")
    failed["status"]["containerStatuses"] = [{"name": "pytorch", "restartCount": 0, "state": {"terminated": ended}}]
    async with StandIn().listening() as server, watching(server) as one:
        await until(lambda: server.watches() > 0)
        one.handover.close()
        await server.put("pods", "ADDED", failed)
        await until(lambda: not one.source.status().running)
