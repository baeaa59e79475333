"""Who is where: lines that tie a rank to its node, process, device and address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from firstfault.model import NOBODY, Who
from firstfault.text.linear import Pattern
from firstfault.text.signals.base import BlockSignal, Groups, Reading, Signal
from firstfault.text.signals.parts import (
    MOST_NUMBERS,
    given,
    is_address,
    merged,
    nccl_speaker,
    node_name,
    numbers,
    pci,
    pci_of_bus_id,
    whole,
)

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine


def _bound(who: Who, by: str, **values: object) -> Reading:
    return Reading("binding", who, given(by=by, **values))


# What trainers print when they start


def _joined(who: Who, by: str, world: int | None) -> Iterable[Reading]:
    if who != NOBODY:
        yield _bound(who, by, world_size=world)
    if world is not None:
        yield Reading("world-size", values={"n": world})


def _start(who: Who, by: str, world: int | None) -> Iterable[Reading]:
    yield Reading("start", who, given(rank=who.rank, world_size=world))
    yield from _joined(who, by, world)


_LOCAL = Pattern(r"(?i)local[_ -]?rank['\"]?[ =:]+['\"]?(\d+)")
_PID = Pattern(r"(?i)\bpid['\"]?[ =:]+(\d+)")


# a rank of something smaller than the job
_PARTIAL = Pattern(r"(?i)(?:parallel|\b[dtpces]p|group|node|replica|stage|shard)[ _-]+(?:rank|world)")
_GLOBAL = Pattern(r"(?i)(?:^|[^a-z_])(?:global[_ ]|world[_ ])?rank['\"]?[ =:]{1,3}['\"]?(\d+)")
_BEGINS = Pattern(r"(?i)\b(?:initiali[sz]|start|launch|spawn|set(?:ting)? up|setup|join|connect)")


def _named(rank: int | None, line: ReadLine) -> Who:
    local, pid = _LOCAL.search(line.text), _PID.search(line.message)
    return Who(rank=rank, local_rank=int(local.group(1)) if local else None, pid=int(pid.group(1)) if pid else None)


def _rank_of_world(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    if _PARTIAL.search(line.message):
        return
    told = _start if _BEGINS.search(line.message) else _joined
    yield from told(_named(whole(groups["rank"]), line), "start-line", whole(groups["world"]))


def _rank_and_world(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    # the rank may have been taken for a prefix, and is then the speaker's
    rank = _GLOBAL.search(line.text)
    if rank and not _PARTIAL.search(line.message):
        yield from _joined(_named(int(rank.group(1)), line), "start-line", whole(groups["world"]))


def _process_group_pid(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(pid=whole(groups["pid"]))
    yield _bound(who, "start-line")


def _lightning_member(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield from _start(Who(rank=whole(groups["rank"])), "lightning", whole(groups["world"]))


def _lightning_started(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("world-size", values={"n": int(groups["world"] or 0)})


def _classic_init(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield from _start(Who(rank=whole(groups["rank"])), "start-line", None)


def _hf_process(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # Transformers' examples print the local rank here, and -1 where it is unknown
    yield from _start(Who(local_rank=whole(groups["rank"])), "transformers", None)


def _ray_mapping(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(node=groups["ip"], pid=whole(groups["pid"]), rank=whole(groups["rank"]), local_rank=whole(groups["local"]))
    yield Reading("binding", who, given(by="ray", group_rank=whole(groups["group"])), keep="none")


def _mpi_settings(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(rank=whole(groups["rank"]), local_rank=whole(groups["local"]))
    yield from _start(who, "deepspeed", whole(groups["world"]))


_HOST_RANKS = Pattern(r"'([\w.-]+)': \[([\d, ]+)\]")


def _deepspeed_mapping(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    hosts = [(host, numbers(ranks)) for host, ranks in (found.groups() for found in _HOST_RANKS.finditer(groups["hosts"] or ""))]
    world = sum(len(ranks) for _, ranks in hosts)
    for host, ranks in hosts:
        for local, rank in enumerate(ranks[:MOST_NUMBERS]):
            who = Who(rank=rank, local_rank=local, node=node_name(host))
            values = given(by="deepspeed", world_size=world, local_world_size=len(ranks))
            yield Reading("binding", who, values, keep="none" if who.node else "node")


_ENVIRONMENT = Pattern(
    r"\b(LOCAL_WORLD_SIZE|WORLD_SIZE|LOCAL_RANK|GROUP_RANK|NODE_RANK|RANK|SLURM_PROCID|SLURM_LOCALID|MASTER_ADDR)"
    r"['\"]?[=:] ?['\"]?([\w.:-]+)"
)


def _environment(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    told = dict(found.groups() for found in _ENVIRONMENT.finditer(line.text))
    who = Who(rank=whole(told.get("RANK")), local_rank=whole(told.get("LOCAL_RANK")))
    world = whole(told.get("WORLD_SIZE"))
    if who != NOBODY:
        yield _bound(
            who,
            "environment",
            world_size=world,
            local_world_size=whole(told.get("LOCAL_WORLD_SIZE")),
            group_rank=whole(told.get("GROUP_RANK", told.get("NODE_RANK"))),
            task=whole(told.get("SLURM_PROCID")),
        )
    if world:
        yield Reading("world-size", values={"n": world})
    if "MASTER_ADDR" in told:
        yield Reading("setting", values={"name": "MASTER_ADDR", "value": told["MASTER_ADDR"]})


_ACCELERATE = Pattern(r"(Num processes|Process index|Local process index): (\d+)")


def _accelerate(lines: Sequence[ReadLine]) -> Iterable[Reading]:
    told = dict(found.groups() for found in _ACCELERATE.finditer(merged(line.message for line in lines)))
    rank = whole(told.get("Process index"))
    yield from _start(Who(rank=rank, local_rank=whole(told.get("Local process index"))), "accelerate", whole(told.get("Num processes")))


def _closes_accelerate(line: ReadLine) -> bool:
    return "Local process index" in line.message


def _nccl_tests(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(
        rank=whole(groups["rank"]),
        pid=whole(groups["pid"]),
        node=node_name(groups["node"]),
        device=whole(groups["device"]),
        pci=pci(groups["pci"]),
    )
    yield Reading("binding", who, {"by": "nccl-tests"}, keep="none")


def _nan_rank(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    who = Who(rank=whole(groups["rank"]), node=node_name(groups["node"]), device=whole(groups["device"]))
    yield Reading("binding", who, {"by": "megatron"}, keep="none")


# NCCL

_COMM_FIELD = Pattern(r"\b(cudaDev|nvmlDev|busId|commId|parent) (?:0x)?([0-9A-Fa-f]+)")
_COMM_PHASE = Pattern(r"(Init|Abort|Destroy) (START|COMPLETE)")


def _phase(rest: str) -> str | None:
    found = _COMM_PHASE.search(rest)
    if not found:
        return None
    what, how = found.groups()
    if what != "Init":
        return what.lower()
    return "start" if how == "START" else "complete"


def _communicator(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    rest = groups["rest"] or ""
    told = dict(found.groups() for found in _COMM_FIELD.finditer(rest))
    speaker = nccl_speaker(line)
    device = whole(told.get("cudaDev"))
    who = Who(node=speaker.node, pid=speaker.pid, device=speaker.device if device is None else device, pci=pci_of_bus_id(told.get("busId")))
    values = given(
        comm=groups["comm"],
        comm_id=told.get("commId"),
        comm_rank=whole(groups["rank"]),
        nranks=whole(groups["nranks"]),
        bus_id=told.get("busId"),
        nvml_dev=whole(told.get("nvmlDev")),
        parent=told.get("parent"),
        phase=_phase(rest),
    )
    yield Reading("nccl-comm", who, values)


def _interface(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    host = (groups["host"] or "").strip("[]").partition("%")[0]
    if not is_address(host):
        return
    speaker = nccl_speaker(line)
    yield Reading(
        "host-address", Who(node=speaker.node, pid=speaker.pid, device=speaker.device, address=host), given(interface=groups["interface"])
    )


SIGNALS = (
    Signal(
        "rank-of-world",
        r"(?i)\brank['\"]?(?: |=|: ?)(?P<rank>\d+)(?:/| of )(?P<world>\d+)[ ,;]+local[_ -]?rank",
        _rank_of_world,
        "first",
    ),
    Signal("rank-and-world", r"(?i)\bworld[_ ]size['\"]?(?:=|: ?| )(?P<world>\d+)", _rank_and_world, "first"),
    Signal("process-group-pid", r"initialized process group [^\n]{0,40}\bpid (?P<pid>\d+)", _process_group_pid, "first"),
    Signal("lightning-member", r"GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<world>\d+)", _lightning_member, "first"),
    Signal(
        "lightning-started", r"All distributed processes registered\. Starting with (?P<world>\d+) processes", _lightning_started, "first"
    ),
    Signal("classic-init", r"distributed init \(rank (?P<rank>\d+)\)", _classic_init, "first"),
    Signal("transformers-process", r"Process rank: (?P<rank>\d+), device:", _hf_process, "first"),
    Signal(
        "ray-mapping",
        r"\(node_id=\w+, ip=(?P<ip>[\w.:]+), pid=(?P<pid>\d+)\) "
        r"world_rank=(?P<rank>\d+), local_rank=(?P<local>\d+), node_rank=(?P<group>\d+)",
        _ray_mapping,
        "first",
    ),
    Signal("mpi-settings", r"world_rank=(?P<rank>\d+), local_rank=(?P<local>\d+), world_size=(?P<world>\d+)", _mpi_settings, "first"),
    Signal("deepspeed-mapping", r"global_rank_mapping=(?P<hosts>[^\n]+)", _deepspeed_mapping, "first"),
    Signal("environment", r"\b(?:LOCAL_RANK|WORLD_SIZE|MASTER_ADDR)['\"]?(?:=|: ?)['\"]?[\w.]", _environment, "first"),
    BlockSignal("accelerate-state", r"Num processes: \d+", _closes_accelerate, 4, _accelerate, "first"),
    Signal(
        "nccl-tests",
        r"# +Rank +(?P<rank>\d+) (?:Group +\d+ )?Pid +(?P<pid>\d+) on +(?P<node>\S+) device +(?P<device>\d+) \[(?P<pci>[0-9A-Fa-f:.]+)\]",
        _nccl_tests,
        "first",
    ),
    Signal(
        "megatron-nan-rank",
        r"Rank (?P<rank>\d+), node (?P<node>\S+), device (?P<device>\d+), iteration \d+",
        _nan_rank,
        "first",
    ),
    Signal(
        "nccl-communicator", r"comm 0x(?P<comm>[0-9a-f]+) rank (?P<rank>\d+) nranks (?P<nranks>\d+)(?P<rest>[^\n]*)", _communicator, "first"
    ),
    Signal(
        "nccl-interface",
        r"(?:Bootstrap ?|NET/Socket ?): ?Using (?:\[\d+\])?(?P<interface>[\w.-]+):(?P<host>[\w.:%\[\]]+)<\d+>",
        _interface,
        "first",
    ),
    Signal("nccl-oob", r"NET/IB ?: ?Using [^\n]*OOB (?P<interface>[\w.-]+):(?P<host>[\w.:%\[\]]+)<\d+>", _interface, "first"),
)
