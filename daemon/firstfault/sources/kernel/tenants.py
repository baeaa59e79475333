"""Give what a machine's kernel says to the jobs on that machine, and to no job that it cannot be about.

* A message about a process goes to the job of that process alone, with the pod and the process id that the job's own lines use; where the
  process belongs to no job, it goes to nobody.
* A message about a GPU goes to the jobs that have GPUs there, any other message to all jobs there.
* Where several jobs are meant, each copy says so (`tenants`): the correlator then leaves it out for a job whose GPUs are others, and for
  one that shows no fault of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from firstfault.clock import Clock
from firstfault.model import NO_TIME, Event, Fact, Findings, JobKey, Observation, Progress, Who
from firstfault.sources.kernel.guests import Guests
from firstfault.sources.kernel.processes import Process, Processes, owner_in
from firstfault.sources.kubernetes.book import PodBook
from firstfault.sources.kubernetes.pods import Pod
from firstfault.text import pods

AFTER_SECS = 60.0  # the kernel may speak of a pod so long after its end
BEFORE_SECS = 5.0  # pods' times are whole seconds
_DEVICE = re.compile(r"NVRM|Xid|nvidia|NVSwitch|amdgpu|GPU-|habanalabs|accel", re.IGNORECASE)
_OF_A_PROCESS = frozenset({"exit", "oom-kill"})


@dataclass(frozen=True, slots=True)
class Tenant:
    """One job on this machine, with its pods there."""

    job: JobKey
    pods: tuple[Pod, ...] = ()


class Tenants:
    """Say who lives on one machine. `book` is None where no watch of pods is wanted; then followed logs tell it."""

    def __init__(
        self,
        node: str,
        processes: Processes,
        guests: Guests,
        book: PodBook | None,
        clock: Clock,
        unclaimed: Callable[[str, str, int], None] = lambda source, reason, count: None,
    ) -> None:
        self._node, self._processes, self._guests, self._pods, self._clock = node, processes, guests, book, clock
        self._unclaimed = unclaimed

    @property
    def _book(self) -> PodBook | None:
        """The pods that are here; None where nobody tells, or nobody could be asked yet."""
        return self._pods if self._pods is not None and self._pods.listed else None

    def share(self, found: Findings, source: str) -> Findings:
        """Return the findings of a kernel's log as those of the jobs that they concern."""
        shared: dict[str, Observation] = {}
        nobody = 0
        for one in found.observations:
            if isinstance(one, Progress):
                continue
            copies = list(self._copies(one))
            nobody += not copies and isinstance(one, Event)
            shared.update((copy.id, copy) for copy in copies)
        if nobody:
            self._unclaimed(source, "no-job", nobody)
        return replace(found, observations=tuple(shared.values()), words=(), ended=())

    def _copies(self, one: Event | Fact) -> Iterator[Event | Fact]:
        text, pid = _text(one), _pid(one)
        owner = self._owner(text, pid)
        at = one.time.at if one.time.at is not None else self._clock.now()
        if owner is not None and (owner.pod_uid or owner.slurm_job or pid is not None):
            yield from self._to_owner(one, owner, pid, at)
            return
        tenants = self._at(at, bool(_DEVICE.search(text)))
        if len(tenants) > 1 and isinstance(one, Fact) and one.name in _OF_A_PROCESS:
            return  # of one of them, and nobody knows of which
        for tenant in tenants:
            yield from self._given(one, tenant, None, pid if self._book is None else None, len(tenants), pid)

    def _owner(self, text: str, pid: int | None) -> Process | None:
        """Return whose process is meant; None where a message means none, or nobody can tell any more."""
        named = owner_in(text)
        known = self._processes.look(pid) if pid is not None else None
        if named is None:
            return known
        if pid is not None and known is None:
            self._processes.note(pid, named)
        return replace(named, inner=known.inner) if known is not None else named

    def _to_owner(self, one: Event | Fact, owner: Process, pid: int | None, at: float) -> Iterator[Event | Fact]:
        if owner.pod_uid:
            pod = self._book.by_uid(owner.pod_uid) if self._book is not None else None
            if pod is not None and pod.trains:
                yield from self._given(one, Tenant(pod.job, (pod,)), pod, owner.inner, 1, pid)
            return
        for tenant in self._at(at, False):
            if self._book is None and (not owner.slurm_job or tenant.job.run in ("", owner.slurm_job)):
                # outside containers a process has one id, and one of no scheduler may be the job's or may not
                yield from self._given(one, tenant, None, pid, 1, pid)

    def _at(self, at: float, device: bool) -> list[Tenant]:
        if self._book is None:
            return [Tenant(job) for job in self._guests.at(at)]
        here = [pod for pod in self._book.pods() if pod.trains and pod.machine == self._node and _lived(pod, at)]
        if device and any(pod.gpus for pod in here):
            here = [pod for pod in here if pod.gpus]
        jobs: dict[tuple[str, str, str], list[Pod]] = {}
        for pod in here:
            jobs.setdefault((pod.job.namespace, pod.job.job, pod.job.run), []).append(pod)
        return [Tenant(members[0].job, tuple(members)) for members in jobs.values()]

    def _given(
        self, one: Event | Fact, tenant: Tenant, pod: Pod | None, inner: int | None, tenants: int, outer: int | None
    ) -> Iterator[Event | Fact]:
        """Yield one job's copy, and where its pods here stand, so that pod and machine are known to be one."""
        job = replace(tenant.job, attempt=None)  # which one tells the time
        name = f"{one.id}#{job.namespace}/{job.job}/{job.run}"
        told: dict[str, Any] = {"tenants": tenants} if tenants > 1 else {}
        if outer is not None and outer != inner:
            told["host_pid"] = outer
        who = replace(one.who, node=pod.name if pod is not None else self._node, pid=inner)
        if isinstance(one, Event):
            if inner is not None:
                who = replace(who, agent=False)
            yield replace(one, id=name, job=job, who=who, captures={**one.captures, **told})
        else:
            yield replace(one, id=name, job=job, who=who, values={**one.values, **told})
        for member in tenant.pods:
            if (placed := _placed(member, job)) is not None:
                yield placed


def _placed(pod: Pod, job: JobKey) -> Fact | None:
    placement = pods.read_placement(pod.labels)
    if placement is None:
        return None
    values = {name: value for name, value in asdict(placement).items() if value not in (None, "")}
    stream = f"kubernetes:{pod.uid}"
    return Fact(f"{stream}@0/placement", "placement", job, Who(node=pod.name, agent=True), NO_TIME, stream, 0, values)


def _lived(pod: Pod, at: float) -> bool:
    return (pod.since is None or pod.since - BEFORE_SECS <= at) and (pod.until is None or at <= pod.until + AFTER_SECS)


def _text(one: Event | Fact) -> str:
    line = one.line if isinstance(one, Fact) else one.lines[0] if one.lines else None
    return line.text if line is not None else ""


def _pid(one: Event | Fact) -> int | None:
    if isinstance(one, Fact):
        return one.who.pid
    pid = one.captures.get("pid")
    return pid if isinstance(pid, int) else None
