"""Tags that launchers, schedulers and hosts put in front of every line of a process: ranks, tasks, nodes, pids.

`[rankN]:` (torch's excepthook and C++ log) is the global rank, `[defaultN]:` (torchrun --tee) the local one; two `[rankN]:` in a row are
local, then global. Sources: torch 2.x, NCCL, Slurm, Open MPI, Hydra, Horovod, pdsh, Ray, syslog.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from firstfault.text.timestamp import RawStamp


class Reading:
    """Collects the fields of one line while its prefixes are peeled; the first value of a field wins."""

    __slots__ = (
        "agent", "device", "group", "host", "kinds", "labelled", "level", "local", "node", "pid", "rank", "raw", "reach", "speaker",
        "stamp_text", "task",
    )  # fmt: skip

    def __init__(self, labelled: bool) -> None:
        self.rank: int | None = None
        self.local: int | None = None
        self.pid: int | None = None
        self.device: int | None = None
        self.group: int | None = None
        self.task: int | None = None
        self.node: str | None = None
        self.host: str | None = None
        self.raw: RawStamp | None = None
        self.stamp_text: str | None = None
        self.reach = 0  # up to where the message told something of its speaker
        self.agent = False
        self.kinds: list[str] = []
        self.level = self.speaker = ""
        self.labelled = labelled

    def node_is(self, host: str) -> None:
        self.host = host
        if self.node is None:
            self.node = host


Reader = Callable[[Reading, str, int], int]  # returns where the text goes on, or -1


# ranks of launchers ---------------------------------------------------------------------------------------------------------

_RANK = re.compile(r"\[rank(\d{1,7})\]:(?: (?! {0,3}\[rank\d))?")
_TEE = re.compile(r"\[([A-Za-z_][\w-]{0,40}?)(\d{1,6})\]:")
_MPI = re.compile(r"\.?\[(?:[\w.@-]{1,80}),\s?(\d{1,7})\]<(?:stdout|stderr|stddiag)>:(?:\d{1,6}: )? ?(?! )")
_HOROVOD = re.compile(r"\.?\[(\d{1,7})\]<(?:stdout|stderr)>:")
_BARE = re.compile(r"\[(\d{1,6})\]:(?=\S)")
_HYDRA = re.compile(r"\[(\d{1,7})\](?=[\w.-]{1,120}:\d{1,8}:\d{1,8} \[)")
_TASK = re.compile(r"(\d{1,7}): ?")
_STRONG = re.compile(
    r"\s{0,8}(?:\[rank\d|\[[A-Za-z_]+\d+\]:|\[\d{4}-\d\d-\d\d|\d{4}-\d\d-\d\d[T ]\d\d:|\d\d:\d\d:\d\d[.,]\d"
    r"|\[?[IWEF]\d{3,4} \d\d:|\[[IWEF] \w|Traceback \(most recent|  File \"|[\w.]{1,80}(?:Error|Exception)\b"
    r"|[\w.-]{1,80}:\d+:\d+ \[\d|slurmstepd|terminate called|Fatal Python)"
)


def read_rank(reading: Reading, text: str, at: int) -> int:
    if not (match := _RANK.match(text, at)):
        return -1
    number = int(match[1])
    if reading.kinds and reading.kinds[-1] == "rank":
        reading.local = reading.rank  # tee's own template comes first: "[rank0]:[rank4]:" is local 0, global 4
    reading.rank = number
    reading.speaker += match[0].rstrip()
    reading.kinds.append("rank")
    return match.end()


def read_tee(reading: Reading, text: str, at: int) -> int:
    if not (match := _TEE.match(text, at)) or match[1].lower() == "rank":
        return -1
    if reading.local is None:
        reading.local = int(match[2])
    reading.speaker += match[0]
    reading.kinds.append("tee")
    return match.end()


def read_mpi(reading: Reading, text: str, at: int) -> int:
    match = _MPI.match(text, at) or _HOROVOD.match(text, at)
    if not match:
        return -1
    if reading.rank is None:
        reading.rank = int(match[1])
    reading.speaker += f"mpi{match[1]}"
    reading.kinds.append("mpi")
    return match.end()


def read_bare(reading: Reading, text: str, at: int) -> int:
    if match := _BARE.match(text, at):
        if reading.local is None:
            reading.local = int(match[1])
    elif match := _HYDRA.match(text, at):
        if reading.rank is None:
            reading.rank = int(match[1])
    else:
        return -1
    reading.speaker += match[0]
    reading.kinds.append("bare")
    return match.end()


def read_task(reading: Reading, text: str, at: int) -> int:
    """Take `N: ` of srun --label for a task only where the stream is known to be labelled, or what follows starts a record."""
    if reading.task is not None or not (match := _TASK.match(text, at)):
        return -1
    if not reading.labelled and not _STRONG.match(text, match.end()):
        return -1
    reading.task = int(match[1])
    reading.speaker += f"task{match[1]}"
    reading.kinds.append("task")
    return match.end()


# hosts ----------------------------------------------------------------------------------------------------------------------

_NCCL = re.compile(r"([\w.-]{1,120}):(\d{1,8}):(\d{1,8}) \[(-?\d{1,3})\] (?=NCCL |\S{1,200}[: ]\d{1,6}(?: \(\w+\))? NCCL )")
_DOUBLED = re.compile(r"([\w.-]{1,120}): (?:\1: ?)")
_HOST_TAG = re.compile(r"([A-Za-z][\w.]{0,80}[\d-][\w.-]{0,120}|\d{1,3}(?:\.\d{1,3}){3}): ?")
_NO_HOST = re.compile(
    r"(?i)(?:rank|step|epoch|iter|gpu|cuda|layer|batch|stage|device|worker|dp|tp|pp|task|chunk|shard|eval|train|val)[-_ ]?\d+$"
)
_SYSLOG_HOST = re.compile(r" ?([\w.-]{1,120}) ([\w./()@-]{1,80})(?:\[(\d{1,8})\])?: ?")
_STREAM_TAG = re.compile(r"([\w.-]{1,160}) \[(?:stderr|stdout)\] ?")
_UCX = re.compile(r"\[([\w.-]{1,120}):(\d{1,8})\s{0,8}:[^\]]{0,24}\]\s{1,8}")
_MPI_SIGNAL = re.compile(r"\[([\w.-]{1,120}):(\d{1,8})\] (?=\*\*\*|\[ ?\d|Signal|Failing)")
_DAEMONS = ("kernel", "systemd", "slurm", "containerd", "dockerd", "kubelet", "nvidia", "nv-", "mcelog", "sshd", "crond", "rasdaemon")


def read_nccl(reading: Reading, text: str, at: int) -> int:
    if not (match := _NCCL.match(text, at)):
        return -1
    host, pid, _, device = match.groups()
    if not host.isdigit():
        reading.node_is(host)
    if reading.pid is None:
        reading.pid = int(pid)
    if int(device) >= 0:
        reading.device = int(device)
    reading.kinds.append("nccl")
    return match.end()


def read_host_tag(reading: Reading, text: str, at: int) -> int:
    if match := _DOUBLED.match(text, at):
        if match[1].isdigit() or not any(char.isdigit() for char in match[1]):
            return -1
    elif match := _HOST_TAG.match(text, at):
        if _NO_HOST.match(match[1]) or not _STRONG.match(text, match.end()):
            return -1
    else:
        return -1
    if _NO_HOST.match(match[1]):
        return -1
    reading.node_is(match[1])
    reading.speaker += match[1] + ":"
    reading.kinds.append("host")
    return match.end()


def read_stream_tag(reading: Reading, text: str, at: int) -> int:
    if not (match := _STREAM_TAG.match(text, at)) or not any(char.isdigit() for char in match[1]):
        return -1
    reading.node_is(match[1].removesuffix(".nolog"))
    reading.speaker += match[1]
    reading.kinds.append("host")
    return match.end()


def read_syslog_host(reading: Reading, text: str, at: int) -> int:
    """Read `host program[pid]: `, which only follows a stamp; a year-less stamp is enough, others need a known daemon."""
    if not (match := _SYSLOG_HOST.match(text, at)):
        return -1
    host, program, pid = match.groups()
    if reading.raw is None or reading.raw.uptime is not None:
        return -1  # dmesg's own stamp: "[12.5] XFS (sda1): ..." names a file system, not a host
    if reading.raw.year is not None and not pid and not program.startswith(_DAEMONS):
        return -1
    reading.node_is(host)
    if pid and reading.pid is None:
        reading.pid = int(pid)
    reading.kinds.append("syslog")
    return match.end()


def read_process_tag(reading: Reading, text: str, at: int) -> int:
    match = _UCX.match(text, at) or _MPI_SIGNAL.match(text, at)
    if not match:
        return -1
    reading.node_is(match[1])
    if reading.pid is None:
        reading.pid = int(match[2])
    reading.kinds.append("process")
    return match.end()


_RAY = re.compile(r"(?:\[\d{1,2}m)?\(([A-Za-z_][^()]{0,120}?)\s?pid=(\d{1,8})(?:, ip=([\w.:-]{1,60}))?\)(?:\[0m)? ?")
_RAY_DAEMON = re.compile(r"(?:\[\d{1,2}m)?\((?:raylet|autoscaler|gcs_server)(?:, ip=([\w.:-]{1,60}))?[^()]{0,20}\)(?:\[0m)? ?")


def read_ray(reading: Reading, text: str, at: int) -> int:
    if match := _RAY.match(text, at):
        reading.pid = int(match[2])
        ip = match[3]
    elif match := _RAY_DAEMON.match(text, at):
        reading.agent = True
        ip = match[1]
    else:
        return -1
    if ip:
        reading.node_is(ip)
    reading.speaker += match[0].strip()
    reading.kinds.append("ray")
    return match.end()
