"""The logs of an elastic job: each of its machines has one rank, its GPU may fall off the bus, and the others go on."""

from __future__ import annotations

from datetime import UTC, datetime

RANKS = 4


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


def begins(rank: int) -> str:
    """Return how a rank says where it is."""
    who = f"rank {rank} nranks {RANKS} cudaDev 0 nvmlDev 0 busId cb000"
    pid = 100 + rank
    return f"gpu-{rank}:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x55{rank} {who} commId 0xab - Init COMPLETE\n"


def steps(rank: int, first: float, last: float, every: float = 10.0) -> str:
    """Return a rank's step lines between two times; steps are counted from the epoch, so that all ranks count alike."""
    lines = [f"{stamp(first + number * every)} INFO [rank{rank}]: step {int(first + number * every) // 10} loss 2.{number % 100:02}\n"
             for number in range(int((last - first) / every))]  # fmt: skip
    return "".join(lines)


def lost(rank: int, at: float) -> str:
    """Return what the kernel of a rank's machine says when its GPU is gone."""
    return f"{stamp(at)} gpu-{rank} kernel: NVRM: Xid (PCI:0000:cb:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
