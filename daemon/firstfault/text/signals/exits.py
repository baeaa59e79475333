"""Who ended, how, and who says so: launchers, schedulers, shells, containers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import re2

from firstfault.model import NOBODY, Stamp, Who
from firstfault.text.signals.base import BlockSignal, Groups, Keep, Reading, Signal
from firstfault.text.signals.parts import exit_code, given, local_stamp, merged, node_name, numbers, signal_code, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

MOST_TASKS = 4_096  # tasks of one srun line that get a fact each


def _exit(who: Who, keep: Keep = "none", stamp: Stamp | None = None, line_index: int = 0, **values: Any) -> Reading:
    return Reading("exit", who, given(**values), stamp=stamp, line_index=line_index, keep=keep)


# torchelastic


def _elastic_failed(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(local_rank=whole(groups["local"]), pid=whole(groups["pid"]))
    yield _exit(who, "node", code=whole(groups["code"]), by="torchelastic", root=True)


def _elastic_signal(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(Who(pid=whole(groups["pid"])), "node", code=-int(groups["number"] or 0), by="torchelastic-block")


_BLOCK_FIELD = re2.compile(r"\b(time|host|rank|exitcode|error_file)\s*: ?(.*)")
_RANK = re2.compile(r"(\d+) \(local_rank: (\d+)\)")
_CODE = re2.compile(r"(-?\d+) \(pid: (\d+)\)")


def _entry(told: dict[str, str], lines: Sequence[ReadLine], index: int, root: bool) -> Iterable[Reading]:
    code, rank = _CODE.search(told.get("exitcode", "")), _RANK.search(told.get("rank", ""))
    if not code or not rank:
        return
    who = Who(rank=int(rank.group(1)), local_rank=int(rank.group(2)), node=node_name(told.get("host")), pid=int(code.group(2)))
    at = local_stamp(told.get("time"), lines[index])
    stamp = at if lines[index].stamp.at is None else None
    yield _exit(
        who,
        "node",
        stamp,
        index,
        code=int(code.group(1)),
        by="torchelastic-block",
        root=root,
        at=at.at if at else None,
        zoned=at.zoned if at else None,
    )
    yield Reading("binding", who, {"by": "torchelastic-block"}, line_index=index, keep="node")


def _entries(lines: Sequence[ReadLine], root: bool) -> Iterable[Reading]:
    told: dict[str, str] = {}
    for index, line in enumerate(lines):
        found = _BLOCK_FIELD.search(line.message)
        if not found:
            continue
        name, value = found.group(1), found.group(2).strip()
        if name == "time":
            told = {}
        told.setdefault(name, value)
        if name == "exitcode":
            yield from _entry(told, lines, index, root)
        elif name == "error_file" and value == "<N/A>":
            yield Reading("setting", values={"name": "error_file", "value": "none"}, line_index=index)


def _elastic_others(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    yield from _entries(lines, root=False)


def _elastic_root(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    yield from _entries(lines, root=True)


def _closes_failures(line: ReadLine) -> bool:
    return any(mark in line.message for mark in ("Root Cause (first", "<NO_OTHER_FAILURES>", "=========="))


def _closes_root(line: ReadLine) -> bool:
    # the exit code is the last line of the entry that a fact needs; the error's text may go on for pages
    return "error_file" in line.message or "==========" in line.message


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


# Launchers of one node


def _lightning(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # Lightning's own launcher counts its children from 1 on each node and prints that as the rank
    who = Who(local_rank=whole(groups["local"]), pid=whole(groups["pid"]))
    yield _exit(who, "node", code=whole(groups["code"]), by="lightning", root=True)


def _spawn(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    code = whole(groups["code"]) if groups["code"] is not None else signal_code(groups["signal"])
    yield _exit(Who(local_rank=whole(groups["index"])), "node", code=code, by="mp-spawn", root=True)


def _spawn_raised(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(Who(local_rank=whole(groups["index"])), "node", code=1, by="mp-spawn", root=True)


_LOCAL_RANK_ARGUMENT = re2.compile(r"--local[_-]rank[= ',\"]+(\d+)")


def _deepspeed(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    local = _LOCAL_RANK_ARGUMENT.search(groups["command"] or "")
    who = Who(local_rank=int(local.group(1)) if local else None)
    yield _exit(who, "node", code=whole(groups["code"]), by="deepspeed", root=True)


def _composer(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(rank=whole(groups["rank"]), pid=whole(groups["pid"]))
    yield _exit(who, "node", code=whole(groups["code"]), by="composer")


def _composer_crash(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(Who(rank=whole(groups["rank"])), "node", code=whole(groups["code"]), by="composer", root=True)


def _command(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # a launcher's wrapper says this of the whole launch, a program of a tool it called: nobody is named
    code = whole(groups["code"]) if groups["code"] is not None else signal_code(groups["signal"])
    yield _exit(NOBODY, code=code, by="command")


# MPI


def _mpirun(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    code = -int(groups["signal"]) if groups["signal"] is not None else whole(groups["code"])
    pid = whole(groups["pid"]) or None  # PMIx launchers print 0 where they do not know it
    who = Who(rank=whole(groups["rank"]), pid=pid, node=node_name(groups["node"]))
    yield _exit(who, code=code, by="mpirun", root=True)


_MPI_PROCESS = re2.compile(r"Process name: +\[\[\S+,\d+\],(\d+)\]")
_MPI_CODE = re2.compile(r"(?:Exit code|Errorcode|errorcode|EXIT CODE):? +(-?\d+)")


def _mpirun_first(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    process, code = _MPI_PROCESS.search(text), _MPI_CODE.search(text)
    if process and code:
        yield _exit(Who(rank=int(process.group(1))), code=exit_code(int(code.group(1))), by="mpirun", root=True)


_MPI_ABORT = re2.compile(r"MPI_ABORT was invoked on rank (\d+)")


def _mpi_abort(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    who, code = _MPI_ABORT.search(text), _MPI_CODE.search(text)
    if who:
        yield _exit(Who(rank=int(who.group(1))), code=int(code.group(1)) if code else None, by="mpirun", root=True)


_HYDRA = re2.compile(r"PID (\d+) RUNNING AT (\S+)")


def _hydra(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    who, code = _HYDRA.search(text), _MPI_CODE.search(text)
    if who and code:
        # Hydra prints the raw signal number of a killed process
        yield _exit(Who(pid=int(who.group(1)), node=node_name(who.group(2))), code=int(code.group(1)), by="mpirun", raw=True)


def _said_exit_code(line: ReadLine) -> bool:
    return bool(_MPI_CODE.search(line.message))


# Ray


def _ray_worker(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(node=node_name(groups["ip"]), pid=whole(groups["pid"]))
    yield _exit(who, by="ray", what=groups["kind"], intended=groups["kind"] == "INTENDED_USER_EXIT" or None)


_RAY_PID = re2.compile(r"\bpid: (\d+)")
_RAY_IP = re2.compile(r"\bip: ([\d.]+)")


def _ray_actor(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    pid, ip = _RAY_PID.search(text), _RAY_IP.search(text)
    if pid:
        yield _exit(Who(pid=int(pid.group(1)), node=ip.group(1) if ip else None), by="ray", what="actor-died")


def _closes_actor(line: ReadLine) -> bool:
    return bool(_RAY_IP.search(line.message))


# Containers, shells, terminals


def _kubernetes(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    code = whole(groups["code"])
    yield _exit(Who(node=node_name(groups["pod"])), code=None if code is None else exit_code(code), by="kubernetes")


def _shell(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(Who(pid=whole(groups["pid"])), "node", code=signal_code(groups["how"]), by="shell")


def _script(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(NOBODY, code=exit_code(int(groups["code"] or 0)), by="script")


_HOW = r"Killed|Terminated|Out Of Memory|Aborted|Bus error|Segmentation fault|Floating point exception|Illegal instruction|Hangup|Interrupt"

SIGNALS = (
    Signal("elastic-failed", r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)", _elastic_failed),
    Signal("elastic-signal", r"Signal (?P<number>\d+) \(SIG\w+\) received by PID (?P<pid>\d+)", _elastic_signal),
    BlockSignal("elastic-failures", r"Failures:", _closes_failures, 4_000, _elastic_others),
    BlockSignal("elastic-root", r"Root Cause \(first observed failure\)", _closes_root, 12, _elastic_root),
    Signal(
        "srun-exit",
        r"(?P<node>[\w.\[\],-]+)(?:: task |: tasks )(?P<tasks>[\d,\[\]-]+): "
        r"(?P<how>(?:" + _HOW + r")(?: \(core dumped\))?|Exited with exit code (?P<code>\d+))",
        _srun,
    ),
    Signal(
        "lightning-child",
        r"(?:\[rank: (?P<local>\d+)\] )?Child process with PID (?P<pid>\d+) terminated with code (?P<code>-?\d+)",
        _lightning,
    ),
    Signal(
        "spawn-exit",
        r"process (?P<index>\d+) terminated with (?:signal (?P<signal>\w+)|exit code (?P<code>\d+))",
        _spawn,
    ),
    Signal("spawn-raised", r"-- Process (?P<index>\d+) terminated with the following error", _spawn_raised),
    Signal("deepspeed-exit", r"(?P<command>[^\n]*)exits with return code = (?P<code>-?\d+)", _deepspeed),
    Signal("composer-exit", r"Global rank (?P<rank>\d+) \(PID (?P<pid>\d+)\) exited with code (?P<code>-?\d+)", _composer),
    Signal("composer-crash", r"Rank (?P<rank>\d+) crashed with exit code (?P<code>-?\d+)", _composer_crash),
    Signal(
        "command-exit",
        r"CalledProcessError: Command [^\n]*(?:returned non-zero exit status (?P<code>\d+)|died with <Signals\.(?P<signal>\w+)[:>])",
        _command,
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
        "shell-exit",
        r"line \d+: +(?P<pid>\d+) "
        r"(?P<how>Killed|Terminated|Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)\b",
        _shell,
    ),
    Signal("script-exit", r'COMMAND_EXIT_CODE="(?P<code>\d+)"', _script),
)
