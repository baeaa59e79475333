"""Take from a pod as the API server describes it what says where its processes belong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from firstfault.model import JobKey, Stream
from firstfault.sources.ownpod import named_job
from firstfault.text import pods
from firstfault.text.identity import identify, names_job

_GPU = re.compile(r"(?:^|[./-])(?:gpu|neuron|neuroncore|neurondevice|tpu|npu|hpu|gaudi|mig-[\w.]+)$")
# What makes all pods of a job; the owners of other pods stand between a job and its pods, one for each part of it.
_MAKERS = ("PyTorchJob", "MPIJob", "TFJob", "JAXJob", "XGBoostJob", "PaddleJob", "RayCluster")
_NO_JOB = ("DaemonSet", "Node")  # the last one owns static pods
_DEPLOYED = "ReplicaSet"
_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']{1,317})'\]$")


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, as far as it matters here."""

    uid: str
    namespace: str
    name: str
    machine: str
    labels: Mapping[str, str]  # of every stream of the pod
    variables: Mapping[str, Mapping[str, str]]  # by container, further labels of its streams
    job: JobKey
    trains: bool  # whether what happens to its machine is of interest to a job
    gpus: int
    since: float | None  # seconds UTC
    until: float | None  # None: not over yet

    def of_stream(self, container: str) -> dict[str, str]:
        """Return the labels of one container's log."""
        own = self.variables.get(container, {})
        return {**self.labels, **own, pods.CONTAINER: container}


def pod_of(found: Mapping[str, Any], job_labels: Sequence[str] = (), processes: int | None = None) -> Pod | None:
    """Read a pod; None where the object is none."""
    meta, spec, status = (part_of(found, name) for name in ("metadata", "spec", "status"))
    uid, name, namespace = (str(meta.get(key) or "") for key in ("uid", "name", "namespace"))
    if not (uid and name and namespace):
        return None
    machine = str(spec.get("nodeName") or "")
    owner = next((one for one in items_of(meta.get("ownerReferences")) if one.get("controller")), {})
    labels = _labels(meta, spec, status, owner, job_labels)
    gpus = sum(_gpus(one) for one in items_of(spec.get("containers")))
    labels |= {pods.GPUS: str(gpus)} if gpus else {}
    labels |= {pods.PROCESSES: str(processes)} if processes else {}
    variables = {str(one.get("name")): pods.kept_environment(dict(_environment(one, meta, spec, status))) for one in _containers(spec)}
    job = identify(Stream("", "", f"{namespace}_{name}_{uid}/x/0.log", labels)).job
    kind = str(owner.get("kind") or "")
    runs = kind not in _NO_JOB and not (kind == _DEPLOYED and not gpus) and not pods.initialises(labels)
    trains = bool(gpus or names_job(labels)) and runs
    since = time_of(status.get("startTime")) or time_of(meta.get("creationTimestamp"))
    return Pod(uid, namespace, name, machine, labels, variables, job, trains, gpus, since, _ended(status))


def _labels(
    meta: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any], owner: Mapping[str, Any], job_labels: Sequence[str]
) -> dict[str, str]:
    own = _texts(meta.get("labels"))
    told = pods.kept(_texts(meta.get("annotations"))) | pods.kept(own) | named_job(own, job_labels)
    facts = {
        pods.POD: meta.get("name"),
        pods.NAMESPACE: meta.get("namespace"),
        pods.POD_UID: meta.get("uid"),
        pods.POD_IP: status.get("podIP") if not spec.get("hostNetwork") else None,
        pods.HOSTNAME: spec.get("hostname"),
        pods.MACHINE: spec.get("nodeName"),
        pods.OWNER_UID: owner.get("uid") if _makes_job(owner) else None,
    }
    return told | {name: str(value) for name, value in facts.items() if value}


def _makes_job(owner: Mapping[str, Any]) -> bool:
    kind, group = str(owner.get("kind") or ""), str(owner.get("apiVersion") or "").partition("/")[0]
    return kind in _MAKERS or (kind == "Job" and group == "batch.volcano.sh")


def _environment(
    container: Mapping[str, Any], meta: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for one in items_of(container.get("env")):
        name, value = str(one.get("name") or ""), one.get("value")
        if value is None:
            path = str(part_of(part_of(one, "valueFrom"), "fieldRef").get("fieldPath") or "")
            value = _field(path, meta, spec, status)
        if name and value:
            yield name, str(value)


def _field(path: str, meta: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> Any:
    if match := _FIELD.match(path):
        return part_of(meta, match[1]).get(match[2])
    parts = {"metadata": meta, "spec": spec, "status": status}
    first, _, last = path.partition(".")
    return parts.get(first, {}).get(last)


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*items_of(spec.get("initContainers")), *items_of(spec.get("containers"))]


def _gpus(container: Mapping[str, Any]) -> int:
    limits = _texts(part_of(part_of(container, "resources"), "limits"))
    return sum(pods.number_of(count) or 0 for name, count in limits.items() if _GPU.search(name))


def _ended(status: Mapping[str, Any]) -> float | None:
    """Return when the last container of a pod ended that will not run again; an evicted pod may never have had any."""
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    ends = [time_of(part_of(part_of(one, "state"), "terminated").get("finishedAt")) for one in items_of(status.get("containerStatuses"))]
    known = [end for end in ends if end is not None]
    known = known or [at for one in items_of(status.get("conditions")) if (at := time_of(one.get("lastTransitionTime"))) is not None]
    return max(known, default=0.0)


def part_of(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of an object; an empty one where it is missing."""
    value = found.get(name)
    return value if isinstance(value, Mapping) else {}


def items_of(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, Mapping) else {}


def time_of(text: Any) -> float | None:
    """Return an RFC 3339 time in seconds UTC."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
