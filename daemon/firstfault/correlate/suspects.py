"""Name the process or machine that an observation is about."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

SuspectKind = Literal["rank", "local", "pid", "node"]


class Suspect(NamedTuple):
    """One process or machine; equal suspects are the same one."""

    kind: SuspectKind
    rank: int | None = None
    node: str | None = None  # canonical name, see Roster.node
    number: int | None = None  # local rank or pid, by kind


@lru_cache(maxsize=65_536)
def of_rank(rank: int) -> Suspect:
    return Suspect("rank", rank=rank)


def of_local(node: str | None, local_rank: int) -> Suspect:
    return Suspect("local", node=node, number=local_rank)


def of_pid(node: str | None, pid: int) -> Suspect:
    return Suspect("pid", node=node, number=pid)


def of_node(node: str) -> Suspect:
    return Suspect("node", node=node)


def label(suspect: Suspect) -> str:
    """Say who is meant, for a person."""
    where = f" on {suspect.node}" if suspect.node else ""
    if suspect.kind == "rank":
        return f"rank {suspect.rank}"
    if suspect.kind == "local":
        return f"local rank {suspect.number}{where}"
    if suspect.kind == "pid":
        return f"process {suspect.number}{where}"
    return f"node {suspect.node}"


def labels(suspects: tuple[Suspect, ...] | list[Suspect], most: int = 8) -> str:
    """Say who is meant, folding many into ranges: "ranks 0-3, 7"."""
    ranks = sorted(one.rank for one in suspects if one.kind == "rank" and one.rank is not None)
    others = [label(one) for one in suspects if one.kind != "rank"]
    parts = [f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"] if ranks else []
    parts += others[:most]
    if len(others) > most:
        parts.append(f"and {len(others) - most} more")
    return ", ".join(parts)


def ranges(numbers: list[int]) -> str:
    """Write sorted numbers as "0-3, 7"."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ", ".join(parts)
