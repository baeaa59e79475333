"""Know whose the processes of this machine are, by their cgroups, and keep knowing it for a while after they are gone.

The kernel speaks of process ids of the machine. What runs in a container knows itself by another one, which the NSpid line of
/proc/<pid>/status tells (Linux 4.1). A container that mounts the machine's /proc sees the machine's processes there.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from dataclasses import dataclass

from firstfault.clock import Clock

_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_SLURM = re.compile(r"/job_(\d{1,10})(?:/|$|\s)")
KEPT_SECS = 900.0
MOST = 100_000  # processes remembered
_MAX_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Process:
    """Where a process belongs; both empty: to no pod and no job of a scheduler."""

    pod_uid: str = ""
    slurm_job: str = ""
    inner: int | None = None  # its id as it knows itself


def owner_in(text: str) -> Process | None:
    """Return the pod or job whose cgroup a text names."""
    pod, slurm = _POD.search(text), _SLURM.search(text)
    if pod is None and slurm is None:
        return None
    return Process(pod[1].replace("_", "-") if pod else "", slurm[1] if slurm else "")


class Processes:
    """Look processes up in `root`, the /proc of this machine. Safe from any thread."""

    def __init__(self, root: str, clock: Clock) -> None:
        self._root, self._clock = root, clock
        self._lock = threading.Lock()
        self._known: dict[int, Process] = {}
        self._gone: dict[int, float] = {}  # pid -> since when, monotonic

    def look(self, pid: int) -> Process | None:
        """Return whose a process is; None where that cannot be told any more."""
        with self._lock:
            if pid in self._known and pid not in self._gone:
                return self._known[pid]
        found = self._read(pid)
        with self._lock:
            if found is not None:
                self._keep(pid, found)
            return self._known.get(pid)

    def note(self, pid: int, owner: Process) -> None:
        """Remember what a message itself said of a process, unless more is known."""
        with self._lock:
            if pid not in self._known:
                self._keep(pid, owner)

    def scan(self) -> None:
        """Look at all processes that are new, so that they are known when the kernel speaks of them."""
        try:
            there = {int(name) for name in os.listdir(self._root) if name.isdigit()}
        except OSError:
            return  # told by whoever asked for it; single look-ups fail alike
        now = self._clock.monotonic()
        with self._lock:
            for pid in self._known.keys() - there:
                self._gone.setdefault(pid, now)
            fresh = [pid for pid in there if pid not in self._known or pid in self._gone]
        for pid in fresh:
            found = self._read(pid)
            if found is not None:
                with self._lock:
                    self._keep(pid, found)
        with self._lock:
            for pid in [pid for pid, since in self._gone.items() if now - since > KEPT_SECS]:
                del self._gone[pid]
                self._known.pop(pid, None)

    def _keep(self, pid: int, found: Process) -> None:
        self._gone.pop(pid, None)
        self._known.pop(pid, None)
        self._known[pid] = found
        while len(self._known) > MOST:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._gone.pop(oldest, None)

    def _read(self, pid: int) -> Process | None:
        cgroup = self._text(pid, "cgroup")
        if cgroup is None:
            return None
        owner = owner_in(cgroup)
        if owner is None:
            return Process()
        inner = None
        for line in (self._text(pid, "status") or "").split("\n"):
            if line.startswith("NSpid:"):
                with contextlib.suppress(ValueError, IndexError):
                    inner = int(line.split()[-1])
        return Process(owner.pod_uid, owner.slurm_job, inner)

    def _text(self, pid: int, name: str) -> str | None:
        try:
            with open(f"{self._root}/{pid}/{name}", "rb") as file:
                return file.read(_MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return None
