"""What launchers do: rendezvous, restarts, closing their workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from firstfault.model import Who
from firstfault.text.linear import Pattern
from firstfault.text.signals.base import BlockSignal, Groups, Reading, Signal
from firstfault.text.signals.parts import given, is_address, merged, node_name, numbers, signal_name, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

    Read = Callable[[Groups, ReadLine], Iterable[Reading]]


def _closing(by: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        values = given(signal=signal_name(groups.get("signal")), by=by)
        yield Reading("closing", Who(pid=whole(groups["pid"])), values, keep="node")

    return read


def _escalation(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("kill-escalation", Who(pid=whole(groups["pid"])), {"by": "launcher"}, keep="node")


def _not_ending(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("kill-escalation", Who(pid=whole(groups["pid"])), {"by": "launcher", "what": "uninterruptible"}, keep="node")


# Rendezvous


def _endpoint(host: str | None, port: str | None) -> str | None:
    # c10d prints IPv4 peers as garbage; only names can be trusted
    if not host or is_address(host):
        return None
    return f"{host}:{port}" if port else host


def _met(what: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        endpoint = _endpoint(groups.get("host"), groups.get("port"))
        yield Reading("rendezvous", values=given(what=what, endpoint=endpoint, by=groups.get("by")))

    return read


_RENDEZVOUS_ERRORS = {
    "Timeout": "timeout",
    "Closed": "closed",
    "Connection": "failed",
    "State": "failed",
    "GracefulExit": "closed",
    "Infra": "failed",
}


def _error(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("rendezvous", values={"what": _RENDEZVOUS_ERRORS[groups["kind"] or ""], "by": "torchelastic"})


def _client(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    """A store validates its clients: one that takes the connection and closes it without a byte is no store, or a dying one."""
    what = "retry" if (groups["how"] or "").startswith("retrying") else "foreign" if groups["closed"] else "failed"
    yield Reading("rendezvous", values=given(what=what, endpoint=_endpoint(groups["host"], groups["port"])))


def _client_errno(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    if groups["errno"] == "97":  # the other address family is tried next
        yield Reading("note", values={"what": "retry"})
        return
    yield Reading("rendezvous", values=given(what="retry", endpoint=_endpoint((groups["host"] or "").strip("[]"), groups["port"])))


def _port_in_use(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("rendezvous", values=given(what="port-in-use", endpoint=f":{groups['port']}" if groups["port"] else None))


def _keep_alive(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # the node's own description is "<host>_<pid>_<n>"
    name = (groups["node"] or "").rsplit("_", 2)
    who = Who(node=node_name(name[0]), pid=whole(name[1])) if len(name) == 3 else Who(node=node_name(groups["node"]))
    yield Reading("rendezvous", who, {"what": "failed", "by": "torchelastic"})


def _few(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("rendezvous", values=given(what="timeout", by="torchelastic"))


_BLOCK_FIELD = Pattern(
    r"\b(restart_count|master_addr|group_rank|group_world_size|local_ranks|global_ranks|global_world_sizes)=(\[[^\]]*\]|\S+)"
)


def _completed(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    told = dict(found.groups() for found in _BLOCK_FIELD.finditer(merged(line.message for line in lines)))
    local, ranks = numbers(told.get("local_ranks", "")), numbers(told.get("global_ranks", ""))
    sizes = numbers(told.get("global_world_sizes", ""))
    restart, group_rank = whole(told.get("restart_count")), whole(told.get("group_rank"))
    yield Reading("rendezvous", Who(agent=True), given(what="completed", restart=restart, group_rank=group_rank, by="torchelastic"))
    for local_rank, rank in zip(local, ranks, strict=False):
        values = given(
            by="torchelastic-rendezvous", world_size=sizes[0] if sizes else None, local_world_size=len(local), group_rank=group_rank
        )
        yield Reading("binding", Who(rank=rank, local_rank=local_rank), values, keep="node")
    if sizes:
        yield Reading("world-size", values={"n": sizes[0]})


def _closes_completed(line: ReadLine) -> bool:
    return "global_world_sizes=" in line.message


# Restarts and runs


def _restart(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    left, most = int(groups["left"] or 0), int(groups["most"] or 0)
    yield Reading("restart", Who(agent=True), {"count": most - left + 1, "left": left - 1, "by": "torchelastic"})


def _membership(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("restart", Who(agent=True), given(by="torchelastic", what="membership", group_rank=whole(groups["group"])))


def _operator_restart(_groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("restart", values={"by": "kubernetes"}, keep="none")


def _run_id(by: str) -> Read:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        values = given(id=groups["id"], by=by, restart=whole(groups.get("restart")))
        yield Reading("run-id", values=values)

    return read


def _restart_count(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("run-id", values=given(by="torchelastic", restart=whole(groups["restart"])))


SIGNALS = (
    Signal(
        "elastic-closing",
        r"(?:Sending|Closing) process (?P<pid>\d+) (?:closing signal|via signal) (?P<signal>[\w.]+)",
        _closing("torchelastic"),
    ),
    Signal("spawn-closing", r"Terminating process (?P<pid>\d+) via signal (?P<signal>[\w.]+)", _closing("mp-spawn")),
    Signal("deepspeed-closing", r"Killing subprocess (?P<pid>\d+)", _closing("deepspeed")),
    Signal(
        "elastic-escalation",
        r"Unable to shutdown process (?P<pid>\d+) via [\w.]+ ?, forcefully exiting via",
        _escalation,
    ),
    Signal("elastic-not-ending", r"Process (?P<pid>\d+) did not exit after \S+ within \d+s; abandoning", _not_ending),
    Signal("elastic-d-state", r"Worker pid=(?P<pid>\d+) stuck in uninterruptible sleep", _not_ending),
    Signal(
        "rendezvous-error",
        r"(?:raise |rendezvous\.api\.)Rendezvous(?P<kind>Timeout|Closed|Connection|State|GracefulExit|Infra)(?:Exit)?Error",
        _error,
    ),
    Signal("rendezvous-closed", r"The rendezvous '[^']*' is closed", _met("closed")),
    Signal("rendezvous-few", r"can't complete rendezvous: not enough participants", _few),
    Signal(
        "rendezvous-keep-alive",
        r"The node '(?P<node>[^']+)' has failed to (?:send a keep-alive heartbeat to|shutdown) the rendezvous",
        _keep_alive,
    ),
    Signal(
        "rendezvous-client-timeout",
        r"The client socket has timed out after \d+(?:ms|s) while trying to connect to \((?P<host>[^\s,()]+), (?P<port>\d+)\)",
        _met("timeout"),
    ),
    Signal(
        "rendezvous-client",
        r"TCP client failed to connect(?:/validate)? to host (?P<host>\S+):(?P<port>\d+) - (?P<how>timed out|retrying)"
        r"(?:[^:]*: (?P<closed>Failed to recv, got 0 bytes))?",
        _client,
    ),
    Signal(
        "rendezvous-client-errno",
        r"The client socket (?:has failed to connect|cannot be initialized to connect) to "
        r"(?P<host>\S+):(?P<port>\d+) \(errno: (?P<errno>\d+)",
        _client_errno,
    ),
    Signal(
        "rendezvous-unresolved",
        r"network addresses of \((?P<host>[^\s,()]+), (?P<port>\d+)\) cannot be retrieved",
        _met("unresolved"),
    ),
    Signal(
        "rendezvous-port",
        r"The server socket has failed to (?:listen on any local network address\. port: |bind to \S*?:)(?P<port>\d+)",
        _port_in_use,
    ),
    Signal("rendezvous-connected", r"TCP client connected to host (?P<host>\S+):(?P<port>\d+)", _met("connected")),
    BlockSignal("rendezvous-completed", r"Rendezvous complete for workers\. Result:", _closes_completed, 16, _completed),
    Signal("elastic-restart", r"Worker group \w+\. (?P<left>\d+)/(?P<most>\d+) attempts left; will restart worker group", _restart),
    Signal("elastic-membership", r"Detected \d+ new nodes from group_rank=(?P<group>\d+); will restart worker group", _membership),
    Signal(
        "operator-restart",
        r"(?:PyTorchJob \S+ is restarting because|applying RestartJobSet failure policy|Back-off restarting failed container)",
        _operator_restart,
    ),
    Signal("elastic-run-id", r"run_id +: (?P<id>\S+)", _run_id("torchelastic"), "first"),
    Signal("elastic-run-id-env", r"TORCHELASTIC_RUN_ID['\"]?[=:] ?['\"]?(?P<id>[\w.-]+)", _run_id("torchelastic"), "first"),
    Signal("elastic-restart-count", r"TORCHELASTIC_RESTART_COUNT['\"]?[=:] ?['\"]?(?P<restart>\d+)", _restart_count, "first"),
    Signal("slurm-job-id", r"SLURM_JOB(?:_?ID)['\"]?[=:] ?['\"]?(?P<id>\d+)", _run_id("slurm"), "first"),
)
