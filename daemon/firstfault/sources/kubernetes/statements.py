"""Say in one line each what Kubernetes itself did to a pod, in the words of its events, which the entries and signals know.

The same end shows in an event, in the pod's status and in its conditions. Each kind of end is said once a pod, or once a launch of a
container. What says nothing of a running pod (scheduling, pulling images, probes while starting) is not said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from firstfault.sources.kubernetes.pods import Pod, items_of, part_of, time_of

_ENDED = ("Succeeded", "Failed")
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted",
    "PreemptionByKubeScheduler": "preempted",
    "DeletionByTaintManager": "tainted",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByPodGC": "evicted",
    "TerminationByKubelet": "evicted",
}
# Reasons of events of pods, with the kind of end that they tell of
_POD_EVENTS = {
    "Evicted": "evicted",
    "Preempted": "preempted",
    "Preempting": "preempted",
    "TaintManagerEviction": "tainted",
    "OOMKilling": "oom",
    "DeadlineExceeded": "deadline",
}
_NODE_EVENTS = frozenset({"NodeNotReady", "SystemOOM", "OOMKilling", "KernelDeadlock", "ReadonlyFilesystem"})


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that Kubernetes said of a pod."""

    what: str  # unique within the pod: said once
    at: float | None
    text: str


def of_pod(found: Mapping[str, Any], pod: Pod) -> Iterator[Said]:
    """Yield what a pod's own status tells: how its containers ended, that it was evicted or preempted, that its time was over."""
    status = part_of(found, "status")
    reason, message = str(status.get("reason") or ""), _line(status.get("message"))
    for one in items_of(status.get("conditions")):
        cause = str(one.get("reason") or "")
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True" and cause in _DISRUPTIONS:
            said = f"pod {pod.name}: DisruptionTarget {cause}: {_line(one.get('message'))}"
            yield Said(_DISRUPTIONS[cause], time_of(one.get("lastTransitionTime")), said)
    if reason == "Evicted":
        yield Said("evicted", pod.until, f"pod {pod.name}: Evicted: {message}")
    elif reason in ("Preempting", "DeadlineExceeded", "NodeLost"):
        kinds = {"Preempting": "preempted", "DeadlineExceeded": "deadline", "NodeLost": "node-lost"}
        yield Said(kinds[reason], pod.until, f"pod {pod.name}: Reason: {reason}: {message}")
    for one in items_of(status.get("containerStatuses")):
        yield from _ends(one, pod)


def _ends(container: Mapping[str, Any], pod: Pod) -> Iterator[Said]:
    """Yield the last two ends of a container, each named by the launch that ended."""
    name, restarts = str(container.get("name") or ""), int(container.get("restartCount") or 0)
    for part, launch in (("lastState", restarts - 1), ("state", restarts)):
        ended = part_of(part_of(container, part), "terminated")
        code = ended.get("exitCode")
        if not ended or launch < 0 or not isinstance(code, int) or code == 0:
            continue
        reason = str(ended.get("reason") or "Error")
        text = f"container {name} of pod {pod.name} ended with exit code {code} (reason: {reason}, launch {launch})"
        yield Said(f"end/{name}/{launch}", time_of(ended.get("finishedAt")), text)


def of_event(found: Mapping[str, Any], pod: Pod) -> Iterator[Said]:
    """Yield what an event tells of a pod, where it is one that ends pods; `pod` is the pod of the event, or one on its node."""
    kind = str(part_of(found, "involvedObject").get("kind") or "")
    reason, message = str(found.get("reason") or ""), _line(found.get("message"))
    at = time_of(found.get("lastTimestamp")) or time_of(found.get("eventTime")) or time_of(found.get("firstTimestamp"))
    if kind == "Pod" and reason in _POD_EVENTS and not message.startswith("Cancelling"):
        yield Said(_POD_EVENTS[reason], at, f"pod {pod.name}: {reason}: {message}")
    elif kind == "Node" and reason in _NODE_EVENTS:
        second = int(at) if at is not None else str(found.get("metadata", {}).get("uid", ""))
        yield Said(f"node/{reason}/{second}", at, f"node {pod.machine}: {reason}: {message}")


def line_of(said: Said) -> bytes:
    """Write a statement as a line with its time, which Kubernetes knows to the second."""
    stamp = "" if said.at is None else datetime.fromtimestamp(said.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ ")
    return f"{stamp}{said.text}\n".encode()


def _line(text: Any) -> str:
    return " ".join(str(text or "").split())[:1000]
