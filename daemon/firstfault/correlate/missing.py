"""Say which fact would settle an open verdict, and how to get it.

The questions are those that maintainers of the frameworks ask in public reports, by class of failure.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.correlate.clues.own_cause import best_fault
from firstfault.correlate.clues.silence import silent_ranks, timed_out
from firstfault.correlate.clues.symmetry import mute_beside
from firstfault.correlate.suspects import Suspect, labels, ranges
from firstfault.correlate.window import Window
from firstfault.model import FAULT_ROLES, Missing, Verdict

_FLIGHT_RECORDER = (
    "set TORCH_FR_BUFFER_SIZE=2000 (torch < 2.9: TORCH_NCCL_TRACE_BUFFER_SIZE=2000) and TORCH_NCCL_DUMP_ON_TIMEOUT=1, "
    "then run torchfrtrace over the dumps"
)
_SETTINGS = {
    "flight-recorder": ("which collective each rank was in", "the log says that the flight recorder was off", _FLIGHT_RECORDER),
    "error-file": (
        "the traceback of the first failed process",
        "the log says that no error file was written",
        "decorate main() with torch.distributed.elastic.multiprocessing.errors.record",
    ),
}
_LABELS = "torchrun --log-dir DIR --redirects 3 (or --tee 3), srun --label, or one file a rank"
_MOST = 5


def missing_facts(window: Window, verdict: Verdict, fingerprint: str) -> tuple[Missing, ...]:
    """Return the facts that are missing, the most telling first; a settled verdict asks only for what its entry asks."""
    found = list(_settings(window)) if verdict.scope == "undetermined" or fingerprint in ("rank-silent", "rank-killed") else []
    if verdict.scope == "undetermined":
        found = [
            *_unheard(window),
            *_unsaid(window, fingerprint),
            *_collectives(window),
            *_numbers(window),
            *_network(window),
            *_order(window),
            *found,
        ]
    else:
        found = [*_cause(window, verdict, fingerprint), *_unsaid(window, fingerprint), *found]
    entry = window.rules.entries.get(fingerprint)
    if entry is not None:
        shown = {event.symptom for event in window.events if event.fingerprint == fingerprint}
        found += [Missing(one.fact, one.why, one.how) for one in entry.missing if not one.symptom or one.symptom in shown]
    return tuple({one.fact: one for one in found}.values())[:_MOST]


def _settings(window: Window) -> Iterator[Missing]:
    for fact in window.facts("setting"):
        known = _SETTINGS.get(str(fact.values.get("name")))
        if known:
            yield Missing(*known)


def _unheard(window: Window) -> Iterator[Missing]:
    heard = set(window.ranks_heard)
    absent = [rank for rank in window.ranks_known if rank not in heard]
    if absent and heard:
        nodes = "the log of the node that ran them" if len(absent) > 1 else "its stdout and stderr"
        yield Missing(f"what ranks {ranges(absent)} said", "no line of theirs was given", f"{nodes}; add the files to the same command")
    silent = silent_ranks(window)
    for rank in silent[:2]:
        if rank in heard:
            yield Missing(
                f"where rank {rank} stood",
                "it printed no time-out of its own",
                f"py-spy dump --pid PID on its machine before it is killed; {_FLIGHT_RECORDER}",
            )
    unowned = [event for event in window.events if event.role in FAULT_ROLES and window.who(event) is None and event.lines]
    if not heard:
        yield Missing("which rank wrote which line", "no line carries a rank", _LABELS)
    elif unowned:
        line = unowned[0].lines[-1]
        yield Missing(f"which rank wrote {line.source}:{line.number}", "neither the line nor its file says", _LABELS)


def _order(window: Window) -> Iterator[Missing]:
    """Ask after the order of several ranks that each have a fault of their own."""
    own = [suspect for suspect, dossier in sorted(window.processes.items()) if best_fault(window, dossier.faults) is not None]
    if len(own) > 1:
        yield Missing(
            f"which of {labels(own)} failed first",
            "their faults are not apart by more than the clocks' error, or carry no time",
            "stamps with milliseconds on every line, and clocks that NTP or PTP holds together (chronyc tracking on each host)",
        )


def _unsaid(window: Window, fingerprint: str) -> Iterator[Missing]:
    """Ask after those who say nothing of a fault that several others share: it may be everybody's."""
    events = [event for event in window.events if event.fingerprint == fingerprint and window.blames(event)]
    said = {suspect for event in events if (suspect := window.who(event)) in window.processes}
    mute = [one for one in mute_beside(window, said) if _is_neutral(window, one)] if len(said) > 1 else []
    if mute:
        stopped = any(window.dossiers[one].closings for one in mute)
        yield Missing(
            f"whether {labels(mute)} would have met the same fault",
            "the launcher stopped them before they could say" if stopped else "their logs show neither this fault nor another",
            "their standard error up to its end (torchrun --log-dir DIR --redirects 3), or the same start once more: a fault of code, "
            "data or settings that all share comes back on every rank",
        )


def _is_neutral(window: Window, suspect: Suspect) -> bool:
    dossier = window.dossiers[suspect]
    return not (dossier.waited or dossier.faults or dossier.collateral or dossier.finishes)


def _collectives(window: Window) -> Iterator[Missing]:
    if not timed_out(window):
        return
    waits = window.facts("collective-timeout")
    if waits and not any(fact.values.get("numel_in") is not None for fact in waits):
        yield Missing(
            "operation and size on every rank at the number they time out at",
            "the time-outs do not print sizes",
            "set TORCH_DISTRIBUTED_DEBUG=DETAIL or read the flight recorder",
        )
    if len(window.waiters) == len(window.ranks_known) > 1:
        yield Missing(
            "whether the data path between the ranks works",
            "all ranks joined and none is late",
            "run nccl-tests all_reduce_perf on the same GPUs, then again with NCCL_P2P_DISABLE=1; nvidia-smi topo -m",
        )
    elif waits:
        yield Missing("which rank is missing from the collective", "the lines name only waiters", _FLIGHT_RECORDER)


def _numbers(window: Window) -> Iterator[Missing]:
    if any(window.category(event.fingerprint) == "numerical" for event in window.events) or window.facts("numeric"):
        yield Missing(
            "the first rank and batch whose own loss was not finite",
            "the printed numbers are already reduced over ranks",
            "log loss.isfinite() on every rank before the all-reduce; torch.autograd.set_detect_anomaly(True) for one run",
        )


def _network(window: Window) -> Iterator[Missing]:
    if window.facts("peer-lost") and not window.facts("exit"):
        yield Missing(
            "how the peer's process ended",
            "both ends report a lost connection and neither an exit",
            "exit code and last lines of the peer; switch or overlay counters between the two hosts at that second",
        )


def _cause(window: Window, verdict: Verdict, fingerprint: str) -> Iterator[Missing]:
    if fingerprint == "rank-killed":
        host = verdict.nodes[0] if verdict.nodes else "its host"
        yield Missing(
            "who sent SIGKILL",
            "exit records do not say",
            f"journalctl -k --since '10 min ago' | grep -i -E 'oom|killed process' on {host}; "
            "kubectl describe pod POD; sacct -j JOB -o State,ExitCode,MaxRSS",
        )
    elif fingerprint == "rank-silent" and verdict.ranks:
        yield Missing(
            f"what rank {verdict.ranks[0]} was doing",
            "it printed nothing after its last line",
            "py-spy dump --pid PID (or gdb -p PID -batch -ex 'thread apply all bt') on the next occurrence; "
            "the flight-recorder dump of that rank",
        )
    elif fingerprint == "silent-exit":
        yield Missing("why the process ended", "its own log just stops", "its stderr; run it with PYTHONFAULTHANDLER=1")
