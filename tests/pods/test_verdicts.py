"""What Kubernetes did to a pod of a job is part of the job's incident and says who or what ended it."""

from __future__ import annotations

from typing import Any

import pytest

from firstfault.model import Batch
from firstfault.rules.load import load, shipped_folder
from firstfault.sources.base import Handover, Read
from firstfault.sources.kubernetes.api import Access
from firstfault.sources.kubernetes.source import KubernetesSource, Options
from tests.kernel.make import Machine, pod, rank_log, stamp

ENDED = "2026-11-30T11:02:03Z"


@pytest.fixture(scope="module")
def rules():
    return load([shipped_folder()])


class Cluster(Machine):
    """The job's logs, and what the watch says of its pods."""

    def __init__(self, rules, root) -> None:
        super().__init__(rules, root)
        assert self.book is not None
        self.handover = Handover()
        self.source = KubernetesSource(Options(Access("")), self.book, self.handover, clock=self.clock)
        self.runs(pod("llm-0", "gpu-a"), pod("llm-1", "gpu-b"))

    def trains(self, *complain: int) -> None:
        """Feed the logs of four ranks, of which some lose a peer."""
        for name, first in (("llm-0", 0), ("llm-1", 2)):
            for local in (0, 1):
                text = rank_log(name, first + local, 4, 97 + local, local, fails=False)
                if first + local in complain:
                    said = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
                    text += f"{stamp(2)} [rank{first + local}]: {said}\n"
                self.logs(name, text, f"rank{local}")

    def told(self) -> list[str]:
        """Feed what the watch said to the pipeline; return it."""
        found = []
        while (item := self.handover.get(0.0)) is not None:
            assert isinstance(item, Read)
            batch: Batch = item.batch
            found.append(batch.data.decode())
            self.pipeline.feed(batch)
        return found


@pytest.fixture
def cluster(rules, tmp_path) -> Cluster:
    return Cluster(rules, tmp_path)


def after(name: str, node: str, **status: Any) -> dict[str, Any]:
    found = pod(name, node)
    found["status"] |= status
    return found


def test_a_container_killed_for_memory_names_its_machine(cluster):
    """OOMKilled in the status of llm-1, and only the other pod's ranks complain."""
    cluster.trains(0, 1)
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": ENDED}
    state = {"name": "pytorch", "restartCount": 0, "state": {"terminated": ended}}
    cluster.source.pod_is(after("llm-1", "gpu-b", containerStatuses=[state]))
    cluster.told()
    (incident,) = cluster.verdicts()["llm"]
    assert (incident.fingerprint, incident.verdict.scope, incident.verdict.nodes) == ("host-oom-kill", "node", ("gpu-b",))


def test_an_eviction_is_the_cause(cluster):
    """The node was short of memory and the pod had to go."""
    cluster.trains(0, 1)
    cluster.source.pod_is(
        after("llm-1", "gpu-b", phase="Failed", reason="Evicted", message="The node was low on resource: memory. Threshold")
    )
    cluster.told()
    (incident,) = cluster.verdicts()["llm"]
    assert incident.fingerprint == "pod-evicted"
    assert incident.verdict.scope in ("node", "external")
    assert incident.verdict.ranks == ()


def test_a_preemption_came_from_outside(cluster):
    """The scheduler made room for another job: nobody in this one is to blame."""
    cluster.trains(0, 1)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "lastTransitionTime": ENDED}
    cluster.source.pod_is(after("llm-1", "gpu-b", conditions=[condition | {"message": "preempting to accommodate a higher priority pod"}]))
    cluster.told()
    (incident,) = cluster.verdicts()["llm"]
    assert (incident.verdict.scope, incident.fingerprint) == ("external", "node-preempted")


def test_a_node_that_is_lost_is_named(cluster):
    """NodeNotReady of gpu-b is said of the pod there, and of no pod elsewhere."""
    cluster.trains(0, 1)
    message = "Node gpu-b status is now: NodeNotReady"
    about = {"involvedObject": {"kind": "Node", "name": "gpu-b"}, "reason": "NodeNotReady", "metadata": {"uid": "e"}}
    cluster.source.event_is(about | {"message": message, "lastTimestamp": ENDED})
    assert len(cluster.told()) == 1
    (incident,) = cluster.verdicts()["llm"]
    assert (incident.verdict.nodes, incident.fingerprint) == (("gpu-b",), "node-failure")


def test_a_pod_that_waits_for_a_place_is_no_failure(cluster):
    """FailedScheduling, and containers that ended well, are not even said."""
    cluster.trains()
    about = {"involvedObject": {"kind": "Pod", "uid": pod("llm-1", "gpu-b")["metadata"]["uid"]}, "metadata": {"uid": "e"}}
    cluster.source.event_is(about | {"reason": "FailedScheduling", "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."})
    done = {"name": "pytorch", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": ENDED}}}
    cluster.source.pod_is(after("llm-0", "gpu-a", phase="Succeeded", containerStatuses=[done]))
    assert cluster.told() == []
    assert cluster.verdicts()["llm"] == []
