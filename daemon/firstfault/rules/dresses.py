"""Say who writes the lines of an entry, in which prefix styles they come, and dress a line in every style that applies.

Formats: torch's excepthook, `torchrun --tee`, `srun --label`, `mpirun --tag-output`, Ray's driver, CRI and Docker's json-file,
`dmesg`, /dev/kmsg, traditional and ISO syslog, `journalctl -o json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Wrap = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes a line, and in which styles it is therefore met."""

    meaning: str
    shown: tuple[str, ...]  # styles that the examples of an entry must show
    worn: tuple[str, ...]  # styles in which its examples must still match


def _json(**fields: str) -> str:
    return json.dumps(fields, ensure_ascii=False)


_SECOND = "2026-01-02T03:04:05"
WRAPS: Mapping[str, Wrap] = {
    "bare": lambda line: line,
    "rank": lambda line: f"[rank3]: {line}",
    "tee": lambda line: f"[default3]:{line}",
    "tee-rank": lambda line: f"[default3]:[rank3]: {line}",
    "task": lambda line: f"3: {line}",
    "mpi": lambda line: f"[1,3]<stderr>:{line}",
    "ray": lambda line: f"(RayTrainWorker pid=4242, ip=10.0.0.2) {line}",
    "cri": lambda line: f"{_SECOND}.678901234Z stderr F {line}",
    "docker": lambda line: _json(log=line + "\n", stream="stderr", time=f"{_SECOND}.678901234Z"),
    "dmesg": lambda line: f"[431742.532443] {line}",
    "dmesg-time": lambda line: f"[Fri Jan  2 03:04:05 2026] {line}",
    "kmsg": lambda line: f"3,2212,4053155111,-;{line}",
    "syslog": lambda line: f"Jan  2 03:04:05 node-a kernel: {line}",
    "syslog-iso": lambda line: f"{_SECOND}.678901+00:00 node-a kernel: {line}",
    "journal": lambda line: _json(__REALTIME_TIMESTAMP="1767322800678901", _HOSTNAME="node-a", SYSLOG_IDENTIFIER="kernel", MESSAGE=line),
}
_LAUNCHED = ("bare", "tee", "task", "mpi", "ray", "cri", "docker")
_COLLECTED = ("bare", "cri", "docker")
WRITERS: Mapping[str, Writer] = {
    "exception": Writer("a Python exception that ends a rank", ("rank", "tee", "task"), ("rank", "tee-rank", *_LAUNCHED)),
    "process": Writer("what a rank's process prints or logs itself", ("bare", "tee", "task"), _LAUNCHED),
    "c10d": Writer("PyTorch's C++ log", ("c10d",), _LAUNCHED),
    "nccl": Writer("NCCL or RCCL", ("nccl",), _LAUNCHED),
    "kernel": Writer("the kernel of a host", ("dmesg", "syslog"), ("dmesg", "dmesg-time", "kmsg", "syslog", "syslog-iso", "journal")),
    "launcher": Writer("torchrun's agent, mpirun, Ray or another launcher", ("bare",), _COLLECTED),
    "scheduler": Writer("Slurm, LSF or PBS", ("bare",), _COLLECTED),
    "kubernetes": Writer("kubelet, kubectl or an event of Kubernetes", ("bare",), _COLLECTED),
    "service": Writer("a service or tool of a host", ("bare",), _COLLECTED),
    "server": Writer("a serving engine", ("bare",), _COLLECTED),
}
LABELS = frozenset(("rank", "tee", "task", "mpi", "ray", "nccl", "c10", "syslog"))

_LABEL = re.compile(
    r"\[rank\d+\]: |\[(?:default|[a-z_]+)\d+\]:| {0,4}\d{1,5}: (?!\d)|\[\d+,\d+\]<std(?:out|err)>:"
    r"|\([\w.]+ pid=\d+(?:, ip=[^)]+)?\) |\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) std(?:out|err) [FP] "
)
_KERNEL = re.compile(
    r"(?:<\d+>)?(?:\[\s*\d+\.\d+\]|\[\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}\]|\d+,\d+,\d+,[-\w]+;"  # dmesg, dmesg -T, /dev/kmsg
    r"|\w{3} [ \d]\d [\d:]{8} [\w.-]+ kernel:|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? (?:[\w.-]+ kernel:)?)"  # syslog
    r" ?(?:\[\s*[TC]?[\d.]+\] ?)?"  # the caller, or the kernel's own stamp behind syslog's
)
_TASK = re.compile(r" {0,4}\d{1,5}: +\S")
_DMESG = re.compile(r"\[\s*\d+\.\d{6}\](?! \[[\w.-]+:\d)|\[\w{3} \w{3} [ \d]\d ")


def styles(line: str, kinds: tuple[str, ...], enveloped: bool) -> set[str]:
    """Return the styles in which a line is written; `kinds` are the prefixes that were read from it."""
    if _DMESG.match(line):
        return {"dmesg"}
    found = {"c10d" if kind == "c10" else kind for kind in kinds if kind in LABELS}
    if _TASK.match(line):
        found.add("task")  # which the reader of a single line cannot know
    if enveloped:
        found.add("cri")
    return found or {"bare"}


def undressed(line: str, writer: str) -> str:
    """Return a line without what a launcher, a collector or the kernel's log put in front of it."""
    pattern = _KERNEL if writer == "kernel" else _LABEL
    while match := pattern.match(line):
        line = line[match.end() :]
    return line


def writer_of(written: set[str], writers: tuple[str, ...]) -> str:
    """Return which of an entry's writers wrote a line of these styles."""
    own = next((name for name in writers if name in _OWN and _OWN[name] & written), "")
    return own or next((name for name in writers if name not in _OWN or name == "exception"), writers[0])


_OWN: Mapping[str, set[str]] = {"kernel": {"dmesg", "syslog"}, "nccl": {"nccl"}, "c10d": {"c10d"}, "exception": {"rank"}}


def dressed(text: str, writer: str, style: str) -> str:
    """Return this writer's text, line by line, in one style."""
    lines = (undressed(line, writer) for line in text.rstrip("\n").split("\n"))
    return "\n".join(WRAPS[style](line) for line in lines)
