"""What the kernel, drivers and node daemons say: OOM kills, GPU faults, links, memory, disks, network file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from firstfault.model import NOBODY, Who
from firstfault.text.linear import Pattern
from firstfault.text.signals.base import BlockSignal, Groups, Reading, Signal
from firstfault.text.signals.parts import given, merged, nccl_speaker, node_name, pci, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

    Read = Callable[[Groups, ReadLine], Iterable[Reading]]

# Out of memory

_RSS = Pattern(r"anon-rss:(\d+)kB")
_CGROUP = Pattern(r"task_memcg=([^\s,]+)")
_STEPD = Pattern(r"slurmstepd-([\w.-]+):")


def _oom_kill(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    rss = _RSS.search(line.message)
    values = given(by="kernel", process=groups["name"], rss_kb=int(rss.group(1)) if rss else None)
    yield Reading("oom-kill", Who(pid=whole(groups["pid"])), values, keep="node")


def _oom_constraint(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    cgroup = _CGROUP.search(line.message)
    values = given(by="kernel", process=groups["name"], cgroup=cgroup.group(1) if cgroup else None)
    yield Reading("oom-kill", Who(pid=whole(groups["pid"])), values, keep="node")


def _oom_invoked(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # the process that asked for memory, not the one that is killed
    yield Reading("note", values=given(what="oom-invoked", process=groups["name"]), keep="node")


def _oom_slurm(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    stepd = _STEPD.search(line.text)
    who = Who(node=stepd.group(1)) if stepd else NOBODY
    yield Reading("oom-kill", who, given(by="slurm", count=whole(groups["count"]), step=groups["step"]), keep="node")


def _oom_limit(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("oom-kill", values=given(by="slurm", step=groups["step"]), keep="node")


def _oom_ray(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("oom-kill", Who(node=groups["ip"], pid=whole(groups["pid"])), {"by": "ray"}, keep="none")


def _oom_pod(_groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("oom-kill", values={"by": "kubernetes"})


# GPUs

_CAUSED_BY = Pattern(r"caused by previous Xid (\d+)")
# What an Xid says by itself; the others break something on their own
_XID_ROLES = {
    **dict.fromkeys((43, 45), "collateral"),
    **dict.fromkeys((13, 69, 74, *range(144, 151)), "either"),
    **dict.fromkeys((63, 92, 122, 123, 124, 125, 154, 156, 157, 160, 161, 171, 172), "context"),
}
_SEVERITY = Pattern(r"\b(Non-?fatal|Fatal)\b")


def _xid(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    rest = (groups["rest"] or "").strip()
    caused_by, severity = _CAUSED_BY.search(rest), _SEVERITY.search(rest)
    code = int(groups["code"] or 0)
    values = given(
        code=code,
        role=_XID_ROLES.get(code, "initiating"),
        what=rest[:160] or None,
        caused_by=int(caused_by.group(1)) if caused_by else None,
        severity=severity.group(1).lower().replace("-", "") if severity else None,
        by="xid",
    )
    yield Reading("device-fault", Who(pci=pci(groups["pci"]), pid=whole(groups["pid"])), values, keep="node")


def _sxid(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    rest = (groups["rest"] or "").strip()
    severity = _SEVERITY.search(rest)
    values = given(
        code=whole(groups["code"]),
        what=rest[:160] or None,
        severity=severity.group(1).lower().replace("-", "") if severity else None,
        by="sxid",
    )
    yield Reading("device-fault", Who(pci=pci(groups["pci"])), values, keep="node")


def _gpu(what: str, **more: Any) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        who = Who(pci=pci(groups.get("pci")))
        values = given(what=what, gpu=whole(groups.get("gpu")), code=whole(groups.get("code")), **more)
        yield Reading("device-fault", who, values, keep="node")

    return read


def _gpu_uuid(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("binding", Who(pci=pci(groups["pci"])), given(by="nvrm", uuid=groups["uuid"]), keep="node")


# Processes and nodes


_LIBRARY = Pattern(r" in ([^\s\[]+)\[")


def _died(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    library = _LIBRARY.search(line.message)
    code = -4 if groups["how"] == "trap invalid opcode" else -11
    values = given(code=code, by="kernel", process=groups["name"], library=library.group(1) if library else None)
    yield Reading("exit", Who(pid=whole(groups["pid"])), values, keep="node")


def _memory_failure(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(pid=whole(groups["pid"]))
    yield Reading("node-fault", who, given(what="memory-failure", process=groups["name"]), keep="node")
    yield Reading("exit", who, {"code": -7, "by": "kernel"}, keep="node")


def _task(what: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("node-fault", Who(pid=whole(groups["pid"])), given(what=what, process=groups["name"]), keep="node")

    return read


def _node(what: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("node-fault", values=given(what=what, device=groups.get("device")), keep="node")

    return read


def _named_node(what: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("node-fault", Who(node=node_name(groups["node"])), {"what": what}, keep="none")

    return read


def _rank_disk(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    shared = "shm" in line.message or "shared memory" in line.message
    yield Reading("node-fault", values={"what": "shm-full" if shared else "disk-full"})


def _recovered(what: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("note", values=given(what=what, device=groups.get("device")), keep="node")

    return read


_IB_RECOVERED = {"port active", "client reregistration", "gid table change", "lid change", "sm change", "pkey change"}


def _ib_event(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    event = (groups["event"] or "").strip()
    device = groups["device"]
    if event.lower().startswith(tuple(_IB_RECOVERED)) or "non-fatal" in line.message:
        yield Reading("note", nccl_speaker(line), given(what="ib-event", event=event, device=device))
        return
    yield Reading("node-fault", nccl_speaker(line), given(what="ib-port", event=event[:80], device=device))


_REMOTE_HOST = Pattern(r"Remote host: +([\w.-]+)")


def _daemon_lost(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    found = _REMOTE_HOST.search(merged(line.message for line in lines))
    if found:
        yield Reading("node-fault", Who(node=node_name(found.group(1))), {"what": "daemon-lost"}, keep="none")


def _names_remote_host(line: ReadLine) -> bool:
    return "Remote host:" in line.message


_NAME = r"(?P<name>[^\s\[\](),:]+)"
_PROCESS = r"(?P<pid>\d+) \((?P<name>[^)]*)\)"
_BDF = r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})"

SIGNALS = (
    Signal("oom-kill", r"(?:Out of memory|Memory cgroup out of memory|oom-kill): Kill(?:ed)? process " + _PROCESS, _oom_kill),
    Signal("oom-constraint", r"oom-kill:constraint=CONSTRAINT_[^\n]*task=(?P<name>[^,]*),pid=(?P<pid>\d+)", _oom_constraint),
    Signal("oom-invoked", _NAME + r" invoked oom-killer:", _oom_invoked),
    Signal(
        "oom-slurm",
        r"Detected (?P<count>\d+) oom[-_]kill event(?:s|\(s\))? in (?:StepId=|step )(?P<step>\d+(?:[.+]\w+)*)",
        _oom_slurm,
    ),
    Signal("oom-slurm-limit", r"(?:StepId=(?P<step>\d+(?:[.+]\w+)*) exceeded memory limit|Exceeded job memory limit)", _oom_limit),
    Signal(
        "oom-ray",
        r"Memory on the node \(IP: (?P<ip>[\d.]+), ID: \w+\) where the task \([^\n]*?pid=(?P<pid>\d+), memory used=",
        _oom_ray,
    ),
    Signal("oom-pod", r"[Rr]eason\W{1,20}OOMKilled|OOMKilling event", _oom_pod),
    Signal(
        "xid",
        r"\bXid \(PCI:(?P<pci>[0-9A-Fa-f:.]+)\): (?P<code>\d+)(?:, pid='?(?P<pid>\d+|<[^>]*>)'?)?"
        r"(?:, name=[^,\n]*)?(?:, (?P<rest>[^\n]*))?",
        _xid,
    ),
    Signal("sxid", r"SXid \(PCI:(?P<pci>[0-9A-Fa-f:.]+)\): (?P<code>\d+)(?:, (?P<rest>[^\n]*))?", _sxid),
    Signal("gpu-off-bus", r"NVRM: GPU " + _BDF + r"\.\d: GPU has fallen off the bus", _gpu("fallen-off-the-bus")),
    Signal("gpu-uuid", r"NVRM: GPU at PCI:(?P<pci>[0-9A-Fa-f:.]+): (?P<uuid>GPU-[0-9a-f-]+)", _gpu_uuid),
    Signal("gpu-init", r"NVRM: GPU " + _BDF + r"(?:\.\d)?: RmInitAdapter failed", _gpu("init-failed")),
    Signal(
        "gpu-lost",
        r"Unable to determine the device handle for GPU ?\d*:? ?" + _BDF + r"[^\n]*: (?:GPU is lost|Unknown Error)",
        _gpu("lost"),
    ),
    Signal(
        "nvswitch",
        r"detected NVSwitch (?:non-)?fatal error (?P<code>\d+) on [^\n]*pci bus id (?P<pci>[0-9A-Fa-f:.]+)",
        _gpu("nvswitch", by="fabric-manager"),
    ),
    Signal("dcgm-ecc", r"Detected \d+ volatile double-bit ECC error\(s\) in GPU (?P<gpu>\d+)", _gpu("ecc", by="dcgm")),
    Signal("dcgm-nvlink", r"GPU (?P<gpu>\d+)'s NvLink link \d+ is currently down", _gpu("nvlink-down", by="dcgm")),
    Signal("dcgm-nvlink-errors", r"NvLink errors on GPU (?P<gpu>\d+)'s NVLink which exceeds", _gpu("nvlink-errors", by="dcgm")),
    Signal("dcgm-pcie", r"PCIe replays per minute for GPU (?P<gpu>\d+)", _gpu("pcie-replays", by="dcgm")),
    Signal("dcgm-retired", r"pending retired page has been detected in GPU (?P<gpu>\d+)", _gpu("retired-page", by="dcgm")),
    Signal("dcgm-memory", r"Found \d+ faulty memory elements on GPU (?P<gpu>\d+)", _gpu("memory", by="dcgm")),
    Signal("dcgm-thermal", r"Detected clocks event due to (?:thermal|power) violation in GPU (?P<gpu>\d+)", _gpu("throttled", by="dcgm")),
    Signal("amd-reset", r"amdgpu " + _BDF + r"\.\d: amdgpu: GPU reset begin!", _gpu("reset", by="amdgpu")),
    Signal("amd-ring", r"amdgpu_job_timedout \[amdgpu\]\] \*ERROR\* ring \S+ timeout", _gpu("ring-timeout", by="amdgpu")),
    Signal("tpu-halted", r"Accelerator device halted prematurely", _gpu("tpu-halted")),
    Signal("amd-ras", r"amdgpu " + _BDF + r"\.\d: [^\n]*uncorrectable hardware errors detected in", _gpu("ecc", by="amdgpu")),
    Signal("amd-fault", r"(?:Memory access fault|HW Exception) by GPU node-(?P<gpu>\d+)", _gpu("fault", by="amdgpu")),
    Signal(
        "killed-by-fault",
        r"(?P<name>[\w./-]+)\[(?P<pid>\d+)\]:? (?P<how>segfault at|general protection fault|trap invalid opcode)",
        _died,
    ),
    Signal(
        "memory-failure",
        r"(?:Sending SIGBUS to|: Killing) (?P<name>[^\s:]+):(?P<pid>\d+) due to hardware memory corruption",
        _memory_failure,
    ),
    Signal("hung-task", r"INFO: task (?P<name>[^\n]{1,32}?):(?P<pid>\d+) blocked for more than \d+ seconds", _task("hung-task")),
    Signal("soft-lockup", r"soft lockup - CPU#\d+ stuck for \d+s! \[(?P<name>[^\]:]*):(?P<pid>\d+)\]", _task("soft-lockup")),
    Signal("rcu-stall", r"self-detected stall on CPU", _node("cpu-stall")),
    Signal("cpu-thermal", r"(?:Core|Package) temperature above threshold, cpu clock throttled", _node("cpu-throttled"), "thin"),
    Signal("file-max", r"VFS: file-max limit \d+ reached", _node("file-max")),
    Signal("hard-lockup", r"Watchdog detected hard LOCKUP on cpu", _node("hard-lockup")),
    Signal("kernel-panic", r"Kernel panic - not syncing", _node("kernel-panic")),
    Signal("mce", r"\[Hardware Error\]: (?:CPU \d+: )?Machine Check(?: Exception)?:", _node("mce")),
    Signal("apei", r"\[Hardware Error\]: +event severity: (?:fatal|recoverable)", _node("hardware-error")),
    Signal("edac", r"EDAC MC\d+: \d+ UE [^\n]* on (?P<device>[^\s(]+)", _node("ecc")),
    Signal("edac-corrected", r"EDAC MC\d+: \d+ CE [^\n]* on (?P<device>[^\s(]+)", _recovered("ecc-corrected")),
    Signal("pcie", r"PCIe Bus Error: severity=Uncorrect(?:able|ed)", _node("pcie")),
    Signal("aer", r"AER: Uncorrect(?:able|ed) \((?:Non-)?Fatal\) error (?:message )?received", _node("pcie")),
    Signal("mlx5-link", r"mlx5_core [0-9a-f:.]+(?: (?P<device>\w+))?: Link down", _node("link-down")),
    Signal("mlx5-link-up", r"mlx5_core [0-9a-f:.]+(?: (?P<device>\w+))?: Link up", _recovered("link-up")),
    Signal("mlx5-cable", r"Port module event(?:\[error\])?: module \d+, Cable (?:unplugged|error)", _node("cable")),
    Signal("bond-link", r"link status definitely down for interface (?P<device>[\w.-]+)", _node("link-down")),
    Signal(
        "mlx5-health",
        r"mlx5_core (?P<device>[0-9a-f:.]+): [^\n]*(?:device's health compromised|Fatal error \d+ detected|Health issue observed)",
        _node("nic-health"),
    ),
    Signal(
        "ib-event",
        r"NET/IB : (?:(?P<device>\w+:\d+) )?(?:Got (?:non-fatal )?async event|async fatal event[^:\n]*) ?: ?(?P<event>[^\n]+)",
        _ib_event,
    ),
    Signal("ib-device", r"NET/IB: Device (?P<device>\d+) marked as failed", _node("ib-port")),
    Signal("nfs", r"nfs: server (?P<device>\S+) not responding", _node("nfs")),
    Signal("nfs-ok", r"nfs: server (?P<device>\S+) OK", _recovered("nfs-ok")),
    Signal("lustre-lost", r"Lustre: [^\n]*Connection to (?P<device>\S+) \(at \S+\) was lost", _node("lustre")),
    Signal("lustre-evicted", r"LustreError: [^\n]*This client was evicted by (?P<device>[^\s;]+)", _node("lustre")),
    Signal("lustre-restored", r"Lustre: [^\n]*Connection restored to (?P<device>\S+)", _recovered("lustre-ok")),
    Signal("gpfs", r"File System (?P<device>\S+) unmounted by the system with return code", _node("gpfs")),
    Signal("gpfs-lease", r"Node [\d.]+ \((?P<node>[\w.-]+)\) lease renewal is overdue", _named_node("gpfs")),
    Signal("io-error", r"(?:I/O error, dev|critical medium error, dev|Buffer I/O error on dev) (?P<device>[\w-]+)", _node("io-error")),
    Signal("nvme", r"nvme (?P<device>nvme\d+): (?:I/O [^\n]*timeout|controller is down|Disabling device)", _node("io-error")),
    Signal(
        "read-only",
        r"(?:EXT4-fs \((?P<device>[\w-]+)\): Remounting filesystem read-only|"
        r"XFS \([\w-]+\): (?:Shutting down filesystem|Corruption of in-memory data)"
        r"|EXT4-fs error \(device [\w-]+\))",
        _node("read-only"),
    ),
    Signal("disk-full", r"No space left on device", _rank_disk),
    Signal("node-down-srun", r"Node failure on (?P<node>[\w.-]+)", _named_node("node-down")),
    Signal("node-not-responding", r"Nodes (?P<node>[\w.-]+) not responding, setting DOWN", _named_node("node-down")),
    Signal("node-kubelet", r"Kubelet stopped posting node status", _node("node-down")),
    Signal(
        "node-devices",
        r"no healthy devices present; cannot allocate unhealthy devices|requested number of devices unavailable for",
        _node("devices-unavailable"),
    ),
    Signal("node-ssh", r"Using passwordless-ssh at: (?P<node>[\w.-]+) failed", _named_node("ssh")),
    Signal("device-busy", r"The TPU is already in use by", _node("device-busy")),
    Signal("node-not-ready", r"Node (?P<node>[\w.-]+) status is now: NodeNotReady", _named_node("node-down")),
    Signal(
        "node-dead-ray", r"The node with node id: \w+ and address: (?P<node>[\w.:-]+) [^\n]*has been marked dead", _named_node("node-down")
    ),
    Signal(
        "step-not-ending", r"STEPD TERMINATED ON (?P<node>[\w.-]+) AT \S+ DUE TO JOB NOT ENDING WITH SIGNALS", _named_node("unkillable")
    ),
    BlockSignal("daemon-lost", r"has lost communication with a remote daemon", _names_remote_host, 8, _daemon_lost),
)
