"""A job of two pods on two machines, its logs, and a made-up /proc."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from firstfault.clock import ManualClock
from firstfault.matching import Matching
from firstfault.model import Batch, Stream
from firstfault.pipeline import Pipeline
from firstfault.sources.base import Handover
from firstfault.sources.kernel.guests import Guests
from firstfault.sources.kernel.processes import Processes
from firstfault.sources.kernel.source import kernel_labels
from firstfault.sources.kernel.tenants import Tenants
from firstfault.sources.kubernetes.book import PodBook
from firstfault.sources.kubernetes.pods import pod_of
from tests.services.plugin import unavailable

AT = 1_796_036_523.0  # 2026-11-30T11:02:03Z
UIDS = {name: f"00000000-0000-0000-0000-00000000000{number}" for number, name in enumerate(("llm-0", "llm-1", "other-0", "sys"), 1)}


KMSG = "/dev/kmsg"


def write_kmsg(text: str) -> None:
    """Write to the kernel's own log, which root may."""
    try:
        with open(KMSG, "w", encoding="utf-8") as file:
            file.write(f"<2>{text}\n")
        with open(KMSG, "rb"):
            pass
    except OSError as error:
        unavailable(KMSG, f"{error.strerror}; the kernel's own device was not read (run the tests as root on a machine that has it)")


def stamp(at: float) -> str:
    return datetime.fromtimestamp(AT + at, UTC).isoformat(timespec="microseconds")


def pod(name: str, node: str, job: str = "llm", gpus: int = 2, **labels: str) -> dict[str, Any]:
    """Return a running pod as the API server describes it."""
    meta = {"name": name, "namespace": "ml", "uid": UIDS[name], "creationTimestamp": "2026-11-30T10:00:00Z"}
    meta["labels"] = ({"training.kubeflow.org/job-name": job} if job else {}) | labels
    container = {"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}
    return {
        "metadata": meta,
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running", "startTime": "2026-11-30T10:00:01Z"},
    }


def process(root: Path, pid: int, inner: int, uid: str = "", line: str = "") -> None:
    """Add a process to a made-up /proc; without a pod it is the machine's own."""
    folder = root / str(pid)
    folder.mkdir(parents=True)
    inside = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-0123.scope"
    (folder / "cgroup").write_text(line or f"0::{inside if uid else '/system.slice/sshd.service'}\n")
    (folder / "status").write_text(f"Name:\tpython\nPid:\t{pid}\nNSpid:\t{pid}\t{inner}\n" if uid else f"Name:\tsshd\nNSpid:\t{pid}\n")


class Machine:
    """An agent's view of one machine, in front of a pipeline that hears all logs of the job."""

    def __init__(self, rules, root: Path, node: str = "gpu-b", watched: bool = True) -> None:
        self.pipeline = Pipeline(rules)
        self.node, self.clock = node, ManualClock(AT)
        self.processes = Processes(str(root), self.clock)
        self.guests = Guests(node, Handover(), self.clock)
        self.book = PodBook(self.clock, 10.0) if watched else None
        self.unclaimed: list[tuple[str, str, int]] = []
        tenants = Tenants(node, self.processes, self.guests, self.book, self.clock, lambda *one: self.unclaimed.append(one))
        self.matching: Matching = self.pipeline.matching
        self.matching.share = tenants.share
        self._kernel = ""

    def runs(self, *described: dict[str, Any]) -> None:
        """Let pods run."""
        assert self.book is not None
        for one in described:
            found = pod_of(one)
            assert found is not None
            self.book.put(found)
        self.book.listed = True

    def logs(self, name: str, text: str, container: str = "pytorch") -> None:
        """Feed the log of a pod with the labels that the watch gives it."""
        assert self.book is not None
        path = f"ml_{name}_{UIDS[name]}/{container}/0.log"
        stream = Stream(f"file:{path}", "files", path, dict(self.book.labels_for(f"/var/log/pods/{path}") or {}))
        self.pipeline.feed(Batch(stream, text.encode(), 0, AT))

    def kernel(self, *lines: tuple[float, str]) -> None:
        """Feed lines of the kernel."""
        text = "".join(f"{stamp(at)} {self.node} kernel: {said}\n" for at, said in lines)
        stream = Stream("kmsg:boot", "kmsg", f"{self.node}/kmsg", kernel_labels(self.node))
        self.pipeline.feed(Batch(stream, text.encode(), len(self._kernel), AT))
        self._kernel += text

    def verdicts(self) -> dict[str, list[Any]]:
        """Return the incidents of each job, after everything is over."""
        self.pipeline.finish(AT + 200)
        found: dict[str, list[Any]] = {}
        for attempt in self.pipeline.attempts():
            found.setdefault(attempt.key.job, []).extend(attempt.incidents)
        return found


def rank_log(host: str, rank: int, world: int, pid: int, device: int, fails: bool = True) -> str:
    """Return what one rank prints: NCCL's INIT line, steps, and a collective that timed out."""
    bus = f"{0xCB + device:x}000"
    who = f"rank {rank} nranks {world} cudaDev {device} nvmlDev {device} busId {bus}"
    lines = [
        f"{host}:{pid}:{pid} [{device}] NCCL INFO ncclCommInitRankConfig comm 0x55{rank} {who} commId 0xab - Init COMPLETE",
        *(f"{stamp(step - 100)} [rank{rank}]: step {step} loss 2.{step:02}" for step in range(1, 60)),
    ]
    if fails:
        when = datetime.fromtimestamp(AT + 600, UTC)
        lines.append(
            f"[rank{rank}]:[E1130 {when:%H:%M:%S}.{rank:06} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
            f"timeout: WorkNCCL(SeqNum=61, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for "
            f"600{rank:03} milliseconds before timing out."
        )
    return "\n".join(lines) + "\n"
