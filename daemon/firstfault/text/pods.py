"""What a pod's labels, annotations and environment say of the place of its processes in a job; ordinals of pods are never ranks.

A pod's ordinal counts machines. It leads to a process's global rank only together with the number of processes on each machine, and only
where the launcher itself does not tell the rank: `Roster` decides that. Sources of the names: JobSet, Kubeflow Trainer v1 and v2, Volcano,
LeaderWorkerSet, Kueue, indexed Jobs, torchrun's PET_ variables, Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

POD, POD_UID, POD_IP, HOSTNAME = "k8s.pod.name", "k8s.pod.uid", "k8s.pod.ip", "k8s.pod.hostname"
NAMESPACE, CONTAINER = "k8s.namespace.name", "k8s.container.name"
MACHINE = "firstfault.machine"  # the node that a pod runs on; lines of its log are the pod's, which the roster puts on the machine
OWNER_UID = "firstfault.owner_uid"  # of the object that made all pods of the job
GPUS = "firstfault.gpus"  # how many accelerators a pod was given
PROCESSES = "firstfault.processes_per_node"  # as configured
KERNEL = "firstfault.kernel"  # set where a stream is the log of a machine's kernel, which all jobs on it are given
REPORTS = "firstfault.reports"  # set where a stream speaks of processes and is none
ENV = "env."
NO_ENVIRONMENT: Mapping[str, str] = {}

_PREFIXES = (
    "jobset.sigs.k8s.io/",
    "training.kubeflow.org/",
    "trainer.kubeflow.org/",
    "volcano.sh/",
    "leaderworkerset.sigs.k8s.io/",
    "ray.io/",
    "batch.kubernetes.io/",
    "kueue.x-k8s.io/",
    "nodeset.slinky.slurm.net/",
)
_VARIABLES = frozenset(
    {
        "JOB_COMPLETION_INDEX", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_RDZV_ID", "PET_RDZV_BACKEND", "RANK",
        "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "VC_TASK_INDEX", "VK_TASK_INDEX", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
        "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_RESTART_COUNT", "SLURM_NODEID", "SLURMD_NODENAME",
    }
)  # fmt: skip
_TASK_SIZE = re.compile(r"VC_\w{1,100}_NUM$")
_STEPS_BEFORE = ("dataset-initializer", "model-initializer")  # pods of a TrainJob in which nothing is trained
_MOST_TEXT = 256


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the processes of one pod or machine stand in their job."""

    pod: str = ""
    machine: str = ""
    hostname: str = ""  # what processes in the pod call their host
    address: str = ""
    node_rank: int | None = None  # of the machine among those of the job
    processes: int | None = None  # on each machine
    nodes: int | None = None
    by: str = ""  # what said so

    @property
    def ranks(self) -> range:
        """Return the ranks of its processes, if ranks are dealt out machine by machine."""
        first = (self.node_rank or 0) * (self.processes or 0)
        return range(first, first + (self.processes or 0))


_FIELDS = frozenset(field.name for field in fields(Placement))


def placement_from(values: Mapping[str, Any]) -> Placement:
    """Return what a fact `placement` says; what another version may have added is left out."""
    return Placement(**{name: value for name, value in values.items() if name in _FIELDS})


def kept(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels or annotations that say something of a job; others may be long, and are nobody's business."""
    return {name: text[:_MOST_TEXT] for name, text in labels.items() if name.startswith(_PREFIXES) or name == "job-name"}


def kept_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say something of a job, as labels; all others, which may be secrets, stay where they are."""
    return {ENV + name: text[:_MOST_TEXT] for name, text in environ.items() if text and (name in _VARIABLES or _TASK_SIZE.match(name))}


def initialises(labels: Mapping[str, str]) -> bool:
    """Tell whether a pod only fetches what the training needs."""
    return labels.get("trainer.kubeflow.org/trainjob-ancestor-step") in _STEPS_BEFORE


def number_of(text: str | None) -> int | None:
    """Return a small whole number, or None where the text is none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 8 else None


def read_placement(labels: Mapping[str, str]) -> Placement | None:
    """Read where a stream's processes stand; None where its labels say nothing of it."""
    pod, machine = labels.get(POD, ""), labels.get(MACHINE, "") or labels.get(ENV + "SLURMD_NODENAME", "")
    if not machine and not any(name.startswith(ENV) for name in labels):
        return None
    rank, by = _node_rank(labels)
    nodes, processes = number_of(labels.get(ENV + "PET_NNODES")), _processes(labels)
    if labels.get(ENV + "PET_RDZV_BACKEND", "static") != "static":
        rank = None  # a rendezvous numbers the machines anew
    return Placement(pod, machine, labels.get(HOSTNAME, ""), labels.get(POD_IP, ""), rank, processes, nodes, by if rank is not None else "")


def _processes(labels: Mapping[str, str]) -> int | None:
    told = labels.get(ENV + "PET_NPROC_PER_NODE", "")
    if told in ("auto", "gpu"):
        return number_of(labels.get(GPUS)) or number_of(labels.get(PROCESSES))
    return number_of(told) or number_of(labels.get(PROCESSES))


def _node_rank(labels: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the number of the machine and what said so: the launcher's own variable first, then what the operator counted."""
    if initialises(labels):
        return None, ""
    for found, by in _claims(labels):
        number = number_of(found)
        if number is not None:
            return number, by
    return None, ""


def _claims(labels: Mapping[str, str]) -> Iterable[tuple[str | None, str]]:
    yield labels.get(ENV + "PET_NODE_RANK"), "PET_NODE_RANK"
    if "training.kubeflow.org/job-name" in labels or "volcano.sh/job-name" in labels:
        yield labels.get(ENV + "RANK"), "operator-rank"  # counts pods: the master is 0, worker i is i+1
    yield labels.get(ENV + "LWS_WORKER_INDEX") or labels.get("leaderworkerset.sigs.k8s.io/worker-index"), "worker-index"
    if sum(1 for name in labels if _TASK_SIZE.match(name.removeprefix(ENV))) == 1:  # with several tasks, the index counts within one
        yield labels.get(ENV + "VC_TASK_INDEX") or labels.get(ENV + "VK_TASK_INDEX"), "task-index"
    if labels.get("jobset.sigs.k8s.io/global-replicas", "1") == "1":  # each of several Jobs counts from 0
        index = labels.get(ENV + "JOB_COMPLETION_INDEX") or labels.get("batch.kubernetes.io/job-completion-index")
        yield index, "completion-index"
    yield labels.get("kueue.x-k8s.io/pod-group-pod-index"), "pod-group-index"
    yield labels.get(ENV + "SLURM_NODEID"), "SLURM_NODEID"
