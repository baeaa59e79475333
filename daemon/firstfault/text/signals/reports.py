"""Reports that name ranks: desync, barriers, mismatches, lagging ranks, coordination services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from firstfault.model import Who
from firstfault.text.linear import Pattern
from firstfault.text.signals.base import BlockSignal, Groups, Reading, Signal
from firstfault.text.signals.parts import given, group_of, merged, numbers, own_rank, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

# Desync report


def _never_joined(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("desync", values={"missing": numbers(groups["ranks"] or ""), "states": {}}, keep="none")


def _did_not_join(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    ranks = numbers(groups["ranks"] or "")
    states = {rank: {"seq": int(groups["done"] or 0)} for rank in ranks}
    yield Reading("desync", values={"missing": ranks, "states": states, "seq": int(groups["next"] or 0)}, keep="none")


def _did_not_finish(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    states = {rank: {"seq": int(groups["seq"] or 0)} for rank in numbers(groups["ranks"] or "")}
    yield Reading("desync", values={"missing": [], "states": states, "seq": int(groups["seq"] or 0)}, keep="none")


def _desync_timeout(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    rank = int(groups["rank"] or 0)
    state = {"seq": int(groups["seq"] or 0), "op": groups["op"]}
    yield Reading("desync", values={"missing": [], "states": {rank: state}}, keep="none")


def _culprit(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("lagging", values=given(ranks=[int(groups["rank"] or 0)], by="flight-recorder", error=groups["error"]), keep="none")


def _missing_ranks(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("desync", values={"missing": numbers(groups["ranks"] or ""), "states": {}, "by": "flight-recorder"}, keep="none")


# Barriers and joins


def _barrier(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, _ = group_of(line)
    yield Reading("barrier-missing", who, given(ranks=numbers(groups["ranks"] or ""), of="barrier", timeout_ms=whole(groups["ms"])))


def _store_clients(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    values = given(ranks=[], of="store", joined=whole(groups["joined"]), expected=whole(groups["expected"]))
    yield Reading("barrier-missing", values=values)


def _store_barrier(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who = own_rank(whole(groups["rank"]), line)
    values = given(ranks=[], of="store", joined=whole(groups["joined"]), expected=whole(groups["world"]))
    yield Reading("barrier-missing", who, values)


def _named_missing(of: str) -> Callable[[Groups, ReadLine], Iterable[Reading]]:
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield Reading("barrier-missing", values={"ranks": numbers(groups["ranks"] or ""), "of": of})

    return read


_HOROVOD_RANK = Pattern(r"^\W*(\d+): \[")


def _horovod(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    found = (_HOROVOD_RANK.search(line.message) for line in lines[1:])
    ranks = [int(rank.group(1)) for rank in found if rank]
    if ranks:
        yield Reading("barrier-missing", values={"ranks": ranks, "of": "horovod"})


def _closes_horovod(line: ReadLine) -> bool:
    return not _HOROVOD_RANK.search(line.message)


# JAX coordination service: a task is a process, its number the process's rank

_JAX_TASK = Pattern(r"/job:[\w-]+/replica:\d+/task:(\d+)")
_JAX_BARRIER = Pattern(r"# of tasks that reached the barrier: (\d+)/(\d+)")
_JAX_FIRST = Pattern(r"first task at the barrier: /job:[\w-]+/replica:\d+/task:(\d+)")


def _jax_barrier(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    text = merged(line.message for line in lines)
    joined, first = _JAX_BARRIER.search(text), _JAX_FIRST.search(text)
    _, _, listed = text.partition("timed out task names")
    values = given(
        ranks=sorted({int(found.group(1)) for found in _JAX_TASK.finditer(listed)}),
        of="jax",
        joined=int(joined.group(1)) if joined else None,
        expected=int(joined.group(2)) if joined else None,
        first=int(first.group(1)) if first else None,
    )
    if joined or values["ranks"]:
        yield Reading("barrier-missing", values=values)


def _lists_no_task(line: ReadLine) -> bool:
    return not _JAX_TASK.search(line.message)


def _jax_lost(task: int, index: int = 0) -> Reading:
    values = {"peer_task": task, "manner": "no-heartbeat", "edge": "strong", "backend": "jax"}
    return Reading("peer-lost", values=values, line_index=index)


def _jax_unhealthy(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    for index, line in enumerate(lines):
        for found in _JAX_TASK.finditer(line.message):
            yield _jax_lost(int(found.group(1)), index)


def _jax_heartbeat(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _jax_lost(int(groups["task"] or 0))


def _jax_leader(_groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("peer-lost", values={"peer_task": 0, "manner": "closed", "edge": "weak", "backend": "jax"})


# Mismatches

_FINGERPRINT = Pattern(
    r"(?i)Rank (\d+) is running (?:inconsistent )?(?:collective: )?CollectiveFingerPrint\((?:SequenceNumber=(\d+), )?OpType=(\w+)"
    r"(?:, TensorShape=(\[[^\]]*\]))?(?:, TensorDtypes=(\w+))?"
)


def _print(op: str, shape: str | None, dtype: str | None) -> str:
    return " ".join(part for part in (op, shape, dtype) if part)


def _fingerprints(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    found = [one.groups() for one in _FINGERPRINT.finditer(line.message)]
    if not found:
        return
    seq = next((int(number) for _, number, *_ in found if number), None)
    prints = {int(rank): _print(op, shape, dtype) for rank, _, op, shape, dtype in found}
    yield Reading("collective-mismatch", own_rank(int(found[0][0]), line), given(seq=seq, fingerprints=prints))


_PROCESS_SHAPE = Pattern(r"- Process (\d+): (.{1,200})")


def _shapes(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    found = (_PROCESS_SHAPE.search(line.message) for line in lines)
    prints = {int(one.group(1)): one.group(2).strip() for one in found if one}
    if prints:
        yield Reading("collective-mismatch", values={"fingerprints": prints, "by": "accelerate"})


def _names_no_process(line: ReadLine) -> bool:
    return not _PROCESS_SHAPE.search(line.message)


def _running(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, group = group_of(line)
    text = _print(groups["op"] or "", groups["shape"], groups["dtype"])
    seq = whole(groups["seq"])
    yield Reading("collective-status", who, given(seq=seq, enqueued=seq, op=groups["op"], fingerprint=text) | group)


def _parameter_counts(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    counts = {int(groups["one"] or 0): int(groups["few"] or 0), int(groups["other"] or 0): int(groups["many"] or 0)}
    yield Reading("model-mismatch", own_rank(whole(groups["one"]), line), {"counts": counts})


def _parameter_shape(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    # only ranks that differ from process 0 say this, of themselves
    yield Reading("model-mismatch", own_rank(whole(groups["rank"]), line), {"deviates": True})


def _nccl_versions(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    for rank, version in ((groups["one"], groups["first"]), (groups["other"], groups["second"])):
        yield Reading("version", Who(group_rank=whole(rank)), {"name": "nccl", "value": version}, keep="none")


# Lagging ranks

_RAS_COMM = Pattern(r"#\d+-\d+ \(([0-9a-f]+)\)")
_RAS_COUNT = Pattern(r"(\d+) ranks? (?:have|has) (?:launched up to operation (\d+)|not launched any operations)")
_RAS_ONE = Pattern(r"Rank (\d+) has (?:launched up to operation (\d+)|not launched any operations)")
_RAS_RANKS = Pattern(r"^\W*Ranks? ([\d,\- ]+)")
_RAS_NODE = Pattern(r"\bnode (\S+)")
_RAS_OPERATION = Pattern(r"different (\w+) operation counts")


def _ras_groups(lines: Sequence[ReadLine]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for index, line in enumerate(lines):
        one, count, ranks, node = (pattern.search(line.message) for pattern in (_RAS_ONE, _RAS_COUNT, _RAS_RANKS, _RAS_NODE))
        nodes = [node.group(1)] if node else []
        if one:
            found.append(_ras_group(1, one.group(2), index) | {"ranks": [int(one.group(1))], "nodes": nodes})
        elif count:
            found.append(_ras_group(int(count.group(1)), count.group(2), index))
        elif found and ranks:
            found[-1]["ranks"].extend(numbers(ranks.group(1)))
            found[-1]["nodes"].extend(nodes)
    return found


def _ras_group(count: int, operation: str | None, line: int) -> dict[str, Any]:
    return {"count": count, "operation": int(operation or 0), "ranks": [], "nodes": [], "line": line}


def _ras(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    counted = _ras_groups(lines)
    if len(counted) < 2:
        return
    comm = _RAS_COMM.search(lines[0].message)
    what = _RAS_OPERATION.search(merged(line.message for line in lines))
    furthest = max(group["operation"] for group in counted)
    size = sum(group["count"] for group in counted)
    for group in counted:
        if group["operation"] == furthest:
            continue
        values = given(
            ranks=group["ranks"],
            nodes=sorted(set(group["nodes"])),
            operation=group["operation"],
            furthest=furthest,
            others=size - group["count"],
            count=group["count"],
            comm=comm.group(1) if comm else None,
            comm_size=size,
            op=what.group(1) if what else None,
            by="ras",
        )
        yield Reading("lagging", values=values, line_index=group["line"], keep="none")


def _closes_ras(line: ReadLine) -> bool:
    return not line.message.strip() or bool(_RAS_COMM.search(line.message))


def _ras_process(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(pid=whole(groups["pid"]), node=groups["node"])
    yield Reading("lagging", who, {"ranks": [], "nodes": [groups["node"]], "by": "ras", "gpus": numbers(groups["gpus"] or "")}, keep="none")


def _stragglers(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("lagging", values={"ranks": numbers(groups["ranks"] or ""), "by": "straggler-report"}, keep="none")


_TASKS = r"/job:[\w-]+/replica:\d+/task:"

SIGNALS = (
    Signal("desync-never-joined", r"ranks? \[(?P<ranks>[\d, ]+)\] (?:are|is) the lagging ranks? that caused", _never_joined),
    Signal(
        "desync-not-joined",
        r"\[(?P<ranks>[\d, ]+)\] finished collective #(?P<done>\d+), but didn't join collective #(?P<next>\d+)",
        _did_not_join,
    ),
    Signal("desync-not-finished", r"\[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<seq>\d+)", _did_not_finish),
    Signal("desync-timeout", r"\[(?P<rank>\d+)\] Timeout at collective: (?P<op>\w+), #(?P<seq>\d+)", _desync_timeout),
    Signal("flight-recorder-culprit", r"Culprit rank (?P<rank>\d+); Error type: (?P<error>[\w.]+)", _culprit),
    Signal("flight-recorder-missing", r"\bmissing ranks: \{(?P<ranks>[\d, ]+)\}", _missing_ranks),
    Signal(
        "monitored-barrier",
        r"Ranks? (?P<ranks>[\d, ]+) failed to pass monitoredBarrier(?: in (?P<ms>\d+) ms)?",
        _barrier,
    ),
    Signal(
        "store-clients",
        r"Timed out after \d+ seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+) clients joined",
        _store_clients,
    ),
    Signal(
        "store-barrier",
        r"Timed out initializing process group in store based barrier on rank:? (?P<rank>\d+), for key: [^\n]*"
        r"world_size=(?P<world>\d+), (?:num_workers_joined|worker_count)=(?P<joined>\d+)",
        _store_barrier,
    ),
    Signal("horovod-missing", r"\[missing ranks: (?P<ranks>[\d, ]+)\]", _named_missing("horovod")),
    BlockSignal("horovod-missing-list", r"Missing ranks:", _closes_horovod, 1_100, _horovod),
    Signal("ray-missing", r"The following ranks have not called it: \[(?P<ranks>[\d, ]+)\]", _named_missing("ray")),
    BlockSignal("jax-barrier", r"Barrier timed out\. Id: ", _lists_no_task, 1_100, _jax_barrier),
    BlockSignal("jax-unhealthy", r"tasks are unhealthy \(stopped sending heartbeats\):", _lists_no_task, 1_100, _jax_unhealthy),
    Signal("jax-heartbeat", _TASKS + r"(?P<task>\d+) heartbeat timeout", _jax_heartbeat),
    Signal("jax-leader", r"Failed to send RPC to coordination service\. Either the leader task", _jax_leader),
    Signal("collective-mismatch", r"Detected mismatch between collectives on ranks", _fingerprints),
    BlockSignal("accelerate-shapes", r"Input shapes:", _names_no_process, 1_100, _shapes),
    Signal(
        "collective-running",
        r"Running collective: CollectiveFingerPrint\(SequenceNumber=(?P<seq>\d+), OpType=(?P<op>\w+)"
        r"(?:, TensorShape=(?P<shape>\[[^\]\n]*\]))?(?:, TensorDtypes=(?P<dtype>\w+))?",
        _running,
        "newest",
    ),
    Signal(
        "parameter-counts",
        r"Rank (?P<one>\d+) has (?P<few>\d+) params, while rank (?P<other>\d+) has inconsistent (?P<many>\d+) params",
        _parameter_counts,
    ),
    Signal(
        "parameter-shape",
        r"\[(?P<rank>\d+)\]: params\[\d+\] in this process with (?:sizes|strides) [^\n]*appears not to match",
        _parameter_shape,
    ),
    Signal(
        "nccl-versions",
        r"Mismatched NCCL version detected : rank (?P<one>\d+) version (?P<first>\S+) rank (?P<other>\d+) version (?P<second>\S+)",
        _nccl_versions,
    ),
    BlockSignal("ras-mismatch", r"#\d+-\d+ \([0-9a-f]+\) MISMATCH", _closes_ras, 200, _ras),
    Signal("ras-process", r"Process (?P<pid>\d+) on node (?P<node>\S+) managing GPUs? (?P<gpus>[\d,\- ]+)", _ras_process),
    Signal("stragglers", r"STRAGGLER DETECTION WARNING: [^\n]*Affected ranks: (?P<ranks>[\d,\[\]{} ]+)", _stragglers),
)
