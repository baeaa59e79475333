"""Who ended and how, as the launcher of a node says it: torchelastic, Lightning, mp.spawn, DeepSpeed, Composer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from firstfault.model import NOBODY, Stamp, Who
from firstfault.text.linear import Pattern
from firstfault.text.signals.base import BlockSignal, Groups, Keep, Reading, Signal
from firstfault.text.signals.parts import given, local_stamp, node_name, signal_code, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine


def _exit(who: Who, keep: Keep = "none", stamp: Stamp | None = None, line_index: int = 0, **values: Any) -> Reading:
    return Reading("exit", who, given(**values), stamp=stamp, line_index=line_index, keep=keep)


# torchelastic


def _elastic_failed(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(local_rank=whole(groups["local"]), pid=whole(groups["pid"]))
    yield _exit(who, "node", code=whole(groups["code"]), by="torchelastic", root=True)


def _elastic_signal(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(Who(pid=whole(groups["pid"])), "node", code=-int(groups["number"] or 0), by="torchelastic-block")


_BLOCK_FIELD = Pattern(r"\b(time|host|rank|exitcode|error_file)\s*: ?(.*)")
_RANK = Pattern(r"(\d+) \(local_rank: (\d+)\)")
_CODE = Pattern(r"(-?\d+) \(pid: (\d+)\)")


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


def _elastic_others(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    yield from _entries(lines, root=False)


def _elastic_root(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    yield from _entries(lines, root=True)


def _closes_failures(line: ReadLine) -> bool:
    return any(mark in line.message for mark in ("Root Cause (first", "<NO_OTHER_FAILURES>", "=========="))


def _closes_root(line: ReadLine) -> bool:
    # the exit code is the last line of the entry that a fact needs; the error's text may go on for pages
    return "error_file" in line.message or "==========" in line.message


# Launchers of one node


_LIGHTNING_CHILD = Pattern(r"\[rank: (\d+)\] Child process with PID")


def _lightning(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    # Lightning's own launcher counts its children from 1 on each node and prints that as the rank
    child = _LIGHTNING_CHILD.search(line.text)
    who = Who(local_rank=int(child.group(1)) if child else None, pid=whole(groups["pid"]))
    yield _exit(who, "node", code=whole(groups["code"]), by="lightning", root=True)


def _spawn(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    code = whole(groups["code"]) if groups["code"] is not None else signal_code(groups["signal"])
    yield _exit(Who(local_rank=whole(groups["index"])), "node", code=code, by="mp-spawn", root=True)


def _spawn_raised(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _exit(Who(local_rank=whole(groups["index"])), "node", code=1, by="mp-spawn", root=True)


_LOCAL_RANK_ARGUMENT = Pattern(r"--local[_-]rank[= ',\"]+(\d+)")


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


# Helpers of a rank: their end is the rank's trouble


def _data_worker(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    code = whole(groups["code"]) if groups["code"] is not None else signal_code(groups["signal"])
    yield Reading("exit", Who(pid=whole(groups["pid"])), given(code=code, by="dataloader", child=True))


def _checkpoint_worker(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("exit", values=given(code=whole(groups["code"]), by="checkpointer", child=True))


SIGNALS = (
    Signal("elastic-failed", r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)", _elastic_failed),
    Signal("elastic-signal", r"Signal (?P<number>\d+) \(SIG\w+\) received by PID (?P<pid>\d+)", _elastic_signal),
    BlockSignal("elastic-failures", r"Failures:", _closes_failures, 4_000, _elastic_others),
    BlockSignal("elastic-root", r"Root Cause \(first observed failure\)", _closes_root, 12, _elastic_root),
    Signal(
        "lightning-child",
        r"Child process with PID (?P<pid>\d+) terminated with code (?P<code>-?\d+)",
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
        "data-worker",
        r"DataLoader worker \(pid (?P<pid>\d+)\) (?:is killed by signal: (?P<signal>[A-Z][a-z]+(?: [a-z]+)*)|"
        r"exited unexpectedly with exit code (?P<code>-?\d+))",
        _data_worker,
    ),
    Signal("checkpoint-worker", r"Checkpoint background process is dead\. Exit code: (?P<code>-?\d+)", _checkpoint_worker),
)
