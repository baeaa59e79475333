"""What stopped the job from outside: time limit, cancellation, preemption, eviction, signals to the launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from firstfault.model import NOBODY, Who
from firstfault.text.signals.base import Groups, Reading, Signal
from firstfault.text.signals.parts import STOP_REASONS, given, local_stamp, node_name, signal_code, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

    Read = Callable[[Groups, ReadLine], Iterable[Reading]]

_SLURM_REASONS = (
    ("time limit", "time-limit"),
    ("preemption", "preempted"),
    ("node failure", "node-failure"),
    ("job requeue", "requeued"),
    ("signal", "cancelled"),
)


def _slurm(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    # the host is the step's first one, whoever was at fault: it names nobody
    why = (groups["why"] or "").lower()
    stamp = local_stamp(groups["at"], line)
    values = given(by="slurm", step=groups["step"], of=(groups["of"] or "").lower(), at=stamp.at if stamp else None)
    if "task failure" in why:
        yield Reading("closing", values=values, stamp=stamp, keep="none")
        return
    reason = next((name for words, name in _SLURM_REASONS if words in why), "cancelled")
    yield Reading("stopped-outside", values={"reason": reason, **values}, stamp=stamp, keep="none")


def _srun_closing(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("closing", values=given(by="slurm", step=groups.get("step")), keep="none")


def _reason(reason: str, by: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("stopped-outside", values=given(reason=reason, by=by, step=groups.get("step")), keep="none")

    return read


def _agent_signal(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    number = -(signal_code(groups["number"]) or 0)
    values = {"reason": STOP_REASONS.get(number, f"signal-{number}"), "by": "torchelastic"}
    yield Reading("stopped-outside", Who(pid=whole(groups.get("pid")), agent=True), values)


_NAMED_SIGNALS = {"SIGTERM": "sigterm", "SIGINT": "sigint", "SIGHUP": "sighup", "SIGUSR1": "sigusr1", "SIGUSR2": "sigusr2"}


def _rank_signal(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # its own launcher sends the same signal when another rank failed
    yield Reading("stopped-outside", Who(rank=whole(groups.get("rank"))), {"reason": _NAMED_SIGNALS[groups["signal"] or ""], "by": "rank"})


def _pod(reason: str, by: str = "kubernetes") -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        node = node_name(groups.get("node"))
        yield Reading("stopped-outside", Who(node=node) if node else NOBODY, {"reason": reason, "by": by})

    return read


SIGNALS = (
    Signal(
        "slurm-cancelled",
        r"\*\*\* (?P<of>STEP|JOB) (?P<step>\d+(?:[.+]\w+)*) ON \S+ CANCELLED AT (?P<at>[\d:T-]+)(?: (?P<why>(?:DUE TO|DUE to)[^*\n]*))?",
        _slurm,
    ),
    Signal("srun-terminating", r"_step_signal: Terminating StepId=(?P<step>\d+(?:[.+]\w+)*)", _srun_closing),
    Signal("srun-aborting", r"Job step aborted: Waiting up to \d+ seconds for job step to finish", _srun_closing),
    Signal("srun-forcing", r"Force Terminated (?:StepId=|job )(?P<step>\d+(?:[.+]\w+)*)", _srun_closing),
    Signal("srun-interrupt", r"sending Ctrl-C to (?:StepId=|job )(?P<step>\d+(?:[.+]\w+)*)", _reason("sigint", "slurm")),
    Signal("srun-revoked", r"Job allocation \d+ has been revoked", _reason("cancelled", "slurm")),
    Signal("agent-signal", r"Received (?P<number>\d+|Signals\.\w+) death signal, shutting down workers", _agent_signal),
    Signal("agent-signal-exception", r"SignalException: Process (?P<pid>\d+) got signal: (?P<number>\d+|Signals\.\w+)", _agent_signal),
    Signal("lightning-signal", r"Received (?P<signal>SIGTERM|SIGINT|SIGUSR1|SIGUSR2): \d+", _rank_signal),
    Signal("megatron-signal", r"exiting program after receiving (?P<signal>SIGTERM|SIGINT|SIGUSR1|SIGUSR2)", _rank_signal),
    Signal("megatron-duration", r"exiting program after [\d.]+ minutes", _reason("time-limit", "megatron")),
    Signal("pod-evicted", r"The node was low on resource: ", _pod("evicted")),
    Signal("pod-evicted-condition", r"The node had condition: ", _pod("evicted")),
    Signal(
        "pod-evicted-storage",
        r"(?:Pod ephemeral local storage usage|Usage of EmptyDir volume \S+) exceeds the (?:total )?limit",
        _pod("evicted"),
    ),
    Signal("pod-preempted", r"Preempted by (?:pod|a pod) [^\n]*?on node (?P<node>[\w.-]+)", _pod("preempted")),
    Signal("pod-preempted-reason", r"[Rr]eason\W{1,20}Preempt(?:ing|ed)\b", _pod("preempted")),
    Signal("pod-taint", r"TaintManagerEviction: (?:Marking for deletion|Cancelling deletion of) Pod", _pod("evicted")),
    Signal("pod-disruption", r"DisruptionTarget[^\n]*?(?:DeletionByTaintManager|DeletionByPodGC|EvictionByEvictionAPI)", _pod("evicted")),
    Signal("pod-preempted-scheduler", r"PreemptionByScheduler|PreemptionByKubeScheduler", _pod("preempted")),
    Signal("job-deadline", r"Job was active longer than specified deadline|[Rr]eason\W{1,20}DeadlineExceeded", _pod("time-limit")),
    Signal("kueue", r"Preempted to accommodate a workload", _pod("preempted", "kueue")),
    Signal("kueue-preempted", r"EvictedDueToPreempted", _pod("preempted", "kueue")),
    Signal("kueue-evicted", r"EvictedDueTo(?:NodeFailures|ClusterQueueStopped|PodsReadyTimeout|AdmissionCheck)", _pod("evicted", "kueue")),
    Signal("container-storage", r"exceeded its local ephemeral storage limit", _pod("evicted")),
    Signal(
        "cloud-preemption",
        r"Spot instance termination notice|EC2 Spot Instance Interruption Warning|Preemption notice received|TERMINATE_ON_HOST_MAINTENANCE",
        _pod("preempted", "cloud"),
    ),
)
