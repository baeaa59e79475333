"""Who ended and how, as cluster software says it: Slurm, MPI, Ray, Kubernetes, shells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from firstfault.model import NOBODY, Who
from firstfault.text.linear import Pattern
from firstfault.text.signals.base import BlockSignal, Groups, Keep, Reading, Signal
from firstfault.text.signals.parts import exit_code, given, merged, node_name, numbers, signal_code, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

MOST_TASKS = 4_096  # tasks of one srun line that get a fact each


def _exit(who: Who, keep: Keep = "none", **values: Any) -> Reading:
    return Reading("exit", who, given(**values), keep=keep)


# Slurm


def _srun_code(groups: Groups) -> int | None:
    how = groups["how"] or ""
    if groups["code"] is not None:
        return int(groups["code"])
    return signal_code(how.removesuffix(" (core dumped)"))


def _srun(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    code, node = _srun_code(groups), node_name(groups["node"])
    tasks = numbers(groups["tasks"] or "")
    for task in tasks[:MOST_TASKS]:
        yield _exit(Who(node=node), code=code, by="slurm", task=task, count=len(tasks))
    if groups["how"] == "Out Of Memory":
        yield Reading("oom-kill", Who(node=node), {"by": "slurm", "tasks": tasks}, keep="none")


# MPI


def _mpirun(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    code = -int(groups["signal"]) if groups["signal"] is not None else whole(groups["code"])
    pid = whole(groups["pid"]) or None  # PMIx launchers print 0 where they do not know it
    who = Who(rank=whole(groups["rank"]), pid=pid, node=node_name(groups["node"]))
    yield _exit(who, code=code, by="mpirun", root=True)


_MPI_PROCESS = Pattern(r"Process name: +\[\[\S+,\d+\],(\d+)\]")
_MPI_CODE = Pattern(r"(?:Exit code|Errorcode|errorcode|EXIT CODE):? +(-?\d+)")


def _mpirun_first(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    process, code = _MPI_PROCESS.search(text), _MPI_CODE.search(text)
    if process and code:
        yield _exit(Who(rank=int(process.group(1))), code=exit_code(int(code.group(1))), by="mpirun", root=True)


_MPI_ABORT = Pattern(r"MPI_ABORT was invoked on rank (\d+)")


def _mpi_abort(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    who, code = _MPI_ABORT.search(text), _MPI_CODE.search(text)
    if who:
        yield _exit(Who(rank=int(who.group(1))), code=int(code.group(1)) if code else None, by="mpirun", root=True)


_FATAL = {4, 6, 7, 8, 9, 11, 15}
_HYDRA = Pattern(r"PID (\d+) RUNNING AT (\S+)")


def _hydra(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    who, code = _HYDRA.search(text), _MPI_CODE.search(text)
    if who and code:
        # Hydra prints the bare number of the signal that killed a process
        number = int(code.group(1))
        yield _exit(Who(pid=int(who.group(1)), node=node_name(who.group(2))), code=-number if number in _FATAL else number, by="mpirun")


def _said_exit_code(line: ReadLine) -> bool:
    return bool(_MPI_CODE.search(line.message))


# Ray


def _ray_worker(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(node=node_name(groups["ip"]), pid=whole(groups["pid"]))
    yield _exit(who, by="ray", what=groups["kind"], intended=groups["kind"] == "INTENDED_USER_EXIT" or None)


_RAY_PID = Pattern(r"\bpid: (\d+)")
_RAY_IP = Pattern(r"\bip: ([\d.]+)")


def _ray_actor(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    pid, ip = _RAY_PID.search(text), _RAY_IP.search(text)
    if pid:
        yield _exit(Who(pid=int(pid.group(1)), node=ip.group(1) if ip else None), by="ray", what="actor-died")


def _closes_actor(line: ReadLine) -> bool:
    return bool(_RAY_IP.search(line.message))


# Containers, shells, terminals


def _kubernetes(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # printed as "<namespace>.<pod>"; a pod's own name has no dots in what operators make
    pod = (groups["pod"] or "").rpartition(".")[2]
    yield _exit(Who(node=node_name(pod)), code=exit_code(int(groups["code"] or 0)), by="kubernetes")


def _container(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # the end of the container's first process, as a rule the launcher: of no rank in particular
    yield _exit(Who(node=groups["pod"], agent=True), code=exit_code(int(groups["code"] or 0)), by="kubernetes", process=groups["name"])


def _shell(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(Who(pid=whole(groups["pid"])), "node", code=signal_code(groups["how"]), by="shell")


def _script(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(NOBODY, code=exit_code(int(groups["code"] or 0)), by="script")


_HOW = r"Killed|Terminated|Out Of Memory|Aborted|Bus error|Segmentation fault|Floating point exception|Illegal instruction|Hangup|Interrupt"

SIGNALS = (
    Signal(
        "srun-exit",
        r"(?P<node>[\w.\[\],-]+)(?:: task |: tasks )(?P<tasks>[\d,\[\]-]+): "
        r"(?P<how>(?:" + _HOW + r")(?: \(core dumped\))?|Exited with exit code (?P<code>\d+))",
        _srun,
    ),
    Signal(
        "mpirun-exit",
        r"noticed that process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<node>\S+) exited "
        r"(?:on signal (?P<signal>\d+)|with exit code (?P<code>\d+))",
        _mpirun,
    ),
    BlockSignal("mpirun-first", r"The first process to do so was:", _said_exit_code, 6, _mpirun_first),
    BlockSignal("mpi-abort", r"MPI_ABORT was invoked on rank \d+", _said_exit_code, 5, _mpi_abort),
    BlockSignal("hydra-exit", r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", _said_exit_code, 6, _hydra),
    Signal(
        "ray-worker",
        r"Worker IP address: (?P<ip>[\w.:]+) Worker port: \d+ Worker PID: (?P<pid>\d+) Worker exit type: (?P<kind>\w+)",
        _ray_worker,
    ),
    BlockSignal("ray-actor", r"The actor died unexpectedly before finishing this task", _closes_actor, 10, _ray_actor),
    Signal("pod-exit", r"Pod: (?P<pod>[\w.-]+) exited with code (?P<code>\d+)", _kubernetes),
    Signal(
        "container-exit",
        r"container (?P<name>\S+) of pod (?P<pod>[\w.-]+) ended with exit code (?P<code>\d+)",
        _container,
    ),
    Signal(
        "shell-exit",
        r"line \d+: +(?P<pid>\d+) "
        r"(?P<how>Killed|Terminated|Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)\b",
        _shell,
    ),
    Signal("script-exit", r'COMMAND_EXIT_CODE="(?P<code>\d+)"', _script),
)
