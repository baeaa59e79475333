"""Say where a stream belongs and who speaks in it, from its labels and its path; nothing is inferred beyond what they state.

A local rank is never taken for a global rank, and the ordinal of a pod never for the rank of a process. Sources of the names: torchrun's
`--log-dir`, kubelet's `/var/log/pods`, Slurm's file name patterns, and the labels of JobSet, Kubeflow, Volcano, LeaderWorkerSet, MPI
operator, KubeRay and indexed Jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from firstfault.model import JobKey, Stream, Who
from firstfault.text import pods
from firstfault.text.prefix import Prefix, read_prefix

__all__ = ["Identity", "Prefix", "identify", "read_path", "read_prefix"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a stream belongs and who speaks in it unless a line says otherwise."""

    job: JobKey
    who: Who
    layout: str  # "labels", "torchrun", "agent", "pod", "container", "slurm", "rank-file", "node-file", "kernel", "plain"
    aliases: tuple[str, ...] = ()  # further names of who.node: pod, pod address
    channel: str = ""  # "stdout" or "stderr", where the file holds one of them
    fixed: frozenset[str] = frozenset()  # fields of `who` that were configured and that no line overrides


@dataclass(frozen=True, slots=True)
class _Place:
    """What a path says."""

    layout: str = "plain"
    namespace: str = ""
    job: str = ""
    run: str = ""
    attempt: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    node: str = ""
    channel: str = ""
    agent: bool = False


# labels ---------------------------------------------------------------------------------------------------------------------

_JOB_KEYS = (
    "job",
    "training_job",
    "jobset.sigs.k8s.io/jobset-name",  # TrainJob too: the JobSet has its name
    "training.kubeflow.org/job-name",  # PyTorchJob v1, MPIJob v2beta1
    "volcano.sh/job-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/originated-from-cr-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
    "kueue.x-k8s.io/pod-group-name",
    "env.SLURM_JOB_NAME",
)
_NAMESPACE_KEYS = ("namespace", "k8s.namespace.name", "volcano.sh/job-namespace")
_RUN_KEYS = ("run", "jobset.sigs.k8s.io/jobset-uid", "leaderworkerset.sigs.k8s.io/group-key", pods.OWNER_UID)
_LAUNCH_IDS = ("env.SLURM_JOB_ID", "env.TORCHELASTIC_RUN_ID", "env.PET_RDZV_ID")
# How often the whole job was started again; what starts again within a pod is counted from there on.
_RESTART_KEYS = ("jobset.sigs.k8s.io/restart-attempt", "volcano.sh/job-retry-count", "env.SLURM_RESTART_COUNT")
_CONTAINER_RESTARTS = ("k8s.container.restart_count", "env.TORCHELASTIC_RESTART_COUNT")
_NODE_KEYS = ("node", "k8s.node.name", "nodeset.slinky.slurm.net/pod-hostname", "host", "host.name", "k8s.pod.name")
OWN_HOST = "__host__"  # label with the machine of a matcher; what it reads is taken to be of it where nothing else says so
_ALIAS_KEYS = ("k8s.pod.name", "k8s.pod.ip", "host.name")


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")


def names_job(labels: Mapping[str, str]) -> bool:
    """Tell whether labels name a job, so that it need not be read from the pod's name."""
    return bool(_first(labels, _JOB_KEYS))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


# paths ----------------------------------------------------------------------------------------------------------------------

_ATTEMPT = re.compile(r"attempt_(\d{1,6})$")
_RUN_DIR = re.compile(r"(.{1,200})_[a-z0-9_]{8}$")
_POD_DIR = re.compile(r"([a-z0-9-]{1,63})_([a-z0-9.-]{1,253})_([0-9a-f-]{8,64})$")
_CONTAINER_FILE = re.compile(r"([a-z0-9.-]{1,253})_([a-z0-9-]{1,63})_([a-z0-9-]{1,63}?)-([0-9a-f]{6,64}|\d{1,6})$")
_RESTART = re.compile(r"(\d{1,6})$")
_SUFFIX = re.compile(
    r"(?i)\.(?:log|out|err|txt|json|jsonl|nolog|console|stdout|stderr|gz|zst|bz2|xz|\d{1,3}|log-\d{8}|\d{8}(?:-\d{6})?)$"
    r"|[-_.](?:stdout|stderr|console)$"
)
_RANK_FILE = re.compile(r"(?i)(?:^|[-_.])(?:global[-_]?)?rank[-_.]?(\d{1,7})(?:$|[-_.])|(?:^|[-_.])task[-_.]?(\d{1,7})$")
_LOCAL_FILE = re.compile(r"(?i)(?:^|[-_.])(?:local[-_]?rank[-_.]?|(?:gpu|cuda|device)_?)(\d{1,4})$")  # "gpu-7" is a host
_SLURM_FILE = re.compile(r"(?i)slurm-(\d{1,10})(?:_(\d{1,7}))?(?:[-.](\d{1,7}))?$")
_SLURM_TASK = re.compile(r"([A-Za-z][\w.]*(?:-[A-Za-z][\w.]*)*)-(\d{3,10})-(\d{1,7})$")
_KERNEL_FILE = re.compile(r"(?i)(?:dmesg|kern|kernel|syslog|messages|journal|journalctl)(?:[-_.](.{1,100}))?$")
_AGENT_FILE = re.compile(r"(?i)(?:agent|torchrun|launcher|elastic|mpirun|srun|deepspeed|accelerate)$")
_NOT_A_NODE = re.compile(
    r"(?i)(?:attempt|run|log|logs|part|step|iter|iteration|epoch|job|try|trial|slurm|version|exp|experiment|output|out|err|v|checkpoint|ckpt|seed"
    r"|shard|phase|stage|test|train|eval|date|backup|rank|task|gpu|stdout|stderr|error|events|metrics|wandb|tb)[-_.]?\d*(?:[-_.]\d+)*$"
)
_GENERIC = {
    "log", "logs", "output", "outputs", "out", "tmp", "var", "train", "training", "data", "results", "runs", "run", "job", "jobs",
    "work", "workdir", "checkpoints", "slurm", "torchelastic", "pods", "containers", "input", "home", "mnt", "opt", "srv",
    "scratch", "main", "merged", "all", "viewer", "console", "host", "previous", "current", "nohup", "stdout", "stderr", "error",
    "debug", "app", "application",
}  # fmt: skip
_MACHINE = re.compile(
    r"(?i)(?:.{0,80}[-_.])?(?:node|host|worker|pod|machine|server|compute|gpu|dgx|hgx|tpu|trn|ip|cn|gn|[abh]\d00)(?:[-_.]?\d[\w.-]{0,80}|[-_]\w{1,30})$"
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_POD_ORDINAL = re.compile(
    r"(?:-(?:worker|master|launcher|node|trainer|chief|ps|head|leader|slice|server|main|replica|workers)(?:-\d{1,5}){0,3}|(?:-\d{1,5}){1,3})"
    r"(?:-[a-z0-9]{5})?$"
)


def _stem(name: str) -> tuple[str, str]:
    """Return a file name without its endings, and the channel they name."""
    channel = ""
    for _ in range(5):
        match = _SUFFIX.search(name)
        if not match or match.start() == 0:
            break
        piece = match[0].lower()
        channel = "stderr" if "stderr" in piece or piece == ".err" else "stdout" if "stdout" in piece else channel
        name = name[: match.start()]
    return name, channel


def _looks_like_node(name: str) -> bool:
    if _MACHINE.match(name):
        return True
    if name.isdigit() or not any(char.isdigit() for char in name):
        return False
    return not _NOT_A_NODE.match(name) and not _UUID.match(name) and name.lower() not in _GENERIC


def _above(folders: list[str]) -> tuple[str, str]:
    """Read the folders above a run or a file: the nearest that can be a node, and the nearest beyond it that can be a job."""
    named = [name for name in folders if name.lower() not in _GENERIC and name not in (".", "..", "")]
    if not named:
        return "", ""
    if _looks_like_node(named[-1]):
        return named[-1], named[-2] if len(named) > 1 else ""
    return "", named[-1]


def _above_rank(folders: list[str]) -> tuple[str, str]:
    """Read the folders above a rank's own file: a single one names the job, unless it is called like a machine."""
    node, job = _above(folders)
    return (node, job) if job or _MACHINE.match(node) else ("", node)


def _run_id(folder: str) -> str:
    match = _RUN_DIR.match(folder)
    run = match[1] if match else folder
    return "" if run == "none" else run


def _torchrun(parts: list[str]) -> _Place | None:
    """Read `<node>/<run>_<random>/attempt_<n>/<local rank>/stderr.log`; a static rendezvous calls its run `none`."""
    if len(parts) < 3 or not parts[-2].isdigit() or not (attempt := _ATTEMPT.match(parts[-3])):
        return None
    folders = parts[:-4]
    named = [name for name in folders if name.lower() not in _GENERIC]
    node = named[-1] if named else ""
    job = named[-2] if len(named) > 1 else ""
    _, channel = _stem(parts[-1])
    channel = channel or {"stdout.log": "stdout", "stderr.log": "stderr"}.get(parts[-1], "")
    run = _run_id(parts[-4]) if len(parts) > 3 else ""
    return _Place("torchrun", "", job, run, int(attempt[1]), None, _number(parts[-2]), node, channel)


def _pod(parts: list[str]) -> _Place | None:
    """Read `<namespace>_<pod>_<uid>/<container>/<restart>.log`, or the link `<pod>_<namespace>_<container>-<id>.log` to it."""
    if len(parts) >= 3 and (match := _POD_DIR.match(parts[-3])):
        restart = _RESTART.match(_stem(parts[-1].removesuffix(".gz"))[0])
        attempt = int(restart[1]) if restart else None
        return _Place("pod", match[1], _POD_ORDINAL.sub("", match[2]), "", attempt, node=match[2])
    if match := _CONTAINER_FILE.match(parts[-1].removesuffix(".log")):
        return _Place("container", match[2], _POD_ORDINAL.sub("", match[1]), "", None, node=match[1])
    return None


def _file(parts: list[str]) -> _Place:
    """Read a file name: a rank, a local rank, a Slurm job and task, an agent, a kernel log, or a machine."""
    stem, channel = _stem(parts[-1])
    if match := _KERNEL_FILE.match(stem):
        node, job = _above(parts[:-1])
        named = match[1] if match[1] and match[1].lower() not in _GENERIC else ""
        return _Place("kernel", "", job, node=named or node, agent=True)
    return _rank_file(parts, stem, channel) or _machine_file(parts, stem, channel)


def _rank_file(parts: list[str], stem: str, channel: str) -> _Place | None:
    node, job = _above_rank(parts[:-1])
    if match := _SLURM_FILE.match(stem):
        return _Place("slurm", "", job, match[1], None, _number(match[3]), None, node, channel)
    if match := _LOCAL_FILE.search(stem):
        return _Place("rank-file", "", job, "", None, None, int(match[1]), node, channel)
    if match := _RANK_FILE.search(stem):
        return _Place("rank-file", "", job, "", None, int(match[1] or match[2]), None, node, channel)
    if match := _SLURM_TASK.match(stem):
        return _Place("slurm", "", job or match[1], match[2], None, int(match[3]), None, node, channel)
    return None


def _machine_file(parts: list[str], stem: str, channel: str) -> _Place:
    node, job = _above(parts[:-1])
    if _AGENT_FILE.match(stem):
        return _Place("agent", "", job, "", None, None, None, node, channel, agent=True)
    if _looks_like_node(stem) or ("console" in parts[-1] and stem.lower() not in _GENERIC):
        return _Place("node-file", "", job or node, "", None, None, None, _node_of_file(stem), channel)
    return _Place("plain", "", job, "", None, None, None, node, channel)


def _node_of_file(stem: str) -> str:
    return stem.removeprefix("pod-").removeprefix("node_").removeprefix("host-")


@lru_cache(maxsize=8192)
def read_path(path: str) -> _Place:
    """Read what the path of a log says."""
    parts = [part for part in path.replace("\\", "/").split("/") if part and part != "."]
    if not parts:
        return _Place()
    return _torchrun(parts) or _pod(parts) or _file(parts)


# both -----------------------------------------------------------------------------------------------------------------------


def _job(labels: Mapping[str, str], place: _Place) -> JobKey:
    namespace = _first(labels, _NAMESPACE_KEYS) or place.namespace or "default"
    name = _first(labels, _JOB_KEYS)
    if not name and labels.get("k8s.pod.name"):
        name = _POD_ORDINAL.sub("", labels["k8s.pod.name"])
    return JobKey(namespace, name or place.job or labels.get("__folder__") or "job", _run(labels, place), _attempt(labels, place))


def _run(labels: Mapping[str, str], place: _Place) -> str:
    run = _first(labels, _RUN_KEYS)
    if not run and "jobset.sigs.k8s.io/jobset-name" not in labels:  # each Job of a JobSet has a controller's uid of its own
        run = labels.get("batch.kubernetes.io/controller-uid", "")
    return run or place.run or next((found for key in _LAUNCH_IDS if (found := labels.get(key, "none")) != "none"), "")


def _attempt(labels: Mapping[str, str], place: _Place) -> int | None:
    """Add up what was started again: the job as a whole, and what runs in this pod, which counts anew in every pod."""
    told = _number(labels.get("attempt"))
    if told is not None:
        return told
    whole, inner = _number(_first(labels, _RESTART_KEYS)), _number(_first(labels, _CONTAINER_RESTARTS))
    inner = place.attempt if inner is None else inner
    return None if whole is None and inner is None else (whole or 0) + (inner or 0)


def _who(labels: Mapping[str, str], place: _Place) -> tuple[Who, frozenset[str]]:
    rank, local = _number(labels.get("rank")), _number(labels.get("local_rank"))
    fixed = frozenset(key for key in ("rank", "local_rank", "node") if labels.get(key))
    node = _first(labels, _NODE_KEYS) or place.node or labels.get("env.SLURMD_NODENAME") or labels.get(OWN_HOST) or None
    who = Who(
        rank=rank if rank is not None else place.rank,
        local_rank=local if local is not None else place.local_rank,
        node=node,
        agent=(place.agent or pods.REPORTS in labels) and rank is None and local is None,
    )
    return who, fixed


def identify(stream: Stream, labels: Mapping[str, str] | None = None) -> Identity:
    """Say where a stream belongs and who speaks in it; `labels` are those of one record, where a stream carries many pods.

    Explicit labels (`namespace`, `job`, `run`, `attempt`, `rank`, `local_rank`, `node`) win over Kubernetes labels, those over the path.
    A stream that is no file says in the label `__file__` which path to read instead of its own, "" for none.
    """
    merged = {**labels, **stream.labels} if labels else stream.labels
    path = (merged.get("log.file.path", "") if labels else "") or stream.labels.get("__file__", stream.path)
    place = read_path(path) if path else _Place()
    who, fixed = _who(merged, place)
    aliases = tuple(dict.fromkeys(merged[key] for key in _ALIAS_KEYS if merged.get(key) and merged[key] != who.node))
    layout = place.layout if place.layout != "plain" or not merged else "labels"
    return Identity(_job(merged, place), who, layout, aliases, place.channel, fixed)
