"""Put the independent failures of one attempt in order, and give each what followed it and no other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from firstfault.correlate.decision import Decision
from firstfault.model import Collateral


def in_order(failures: Sequence[tuple[float | None, Decision]]) -> tuple[Decision, ...]:
    """Return decisions by when their failures began (seconds UTC; None: nobody knows, first), so that a later one renumbers no earlier one.

    Who followed belongs to the newest failure before it; who is named in one is no follower of another.
    """
    ordered = sorted(failures, key=lambda one: (-math.inf if one[0] is None else one[0], one[1].fingerprint, one[1].verdict.ranks))
    begun = [-math.inf, *(math.inf if at is None else at for at, _ in ordered[1:])]
    followers = [one for _, decision in failures for one in decision.collateral]
    named = [(set(decision.verdict.ranks), set(decision.verdict.nodes)) for _, decision in ordered]
    mute = {rank for _, decision in failures for rank in decision.silent} - {rank for ranks, _ in named for rank in ranks}
    shares: list[list[Collateral]] = [[] for _ in ordered]
    for one in followers:
        if not any(one.rank in ranks or (not ranks and one.node in nodes) for ranks, nodes in named):
            shares[_newest(begun, one.at)].append(one)
    names = {decision.fingerprint for _, decision in ordered}
    return tuple(
        replace(
            decision,
            collateral=tuple(share),
            silent=tuple(sorted(mute)) if number == len(ordered) - 1 else (),
            also=tuple(name for name in decision.also if name not in names),
            opened_at=decision.opened_at if number == 0 or at is None else at,
        )
        for number, ((at, decision), share) in enumerate(zip(ordered, shares, strict=True))
    )


def _newest(begun: Sequence[float], at: float | None) -> int:
    """Return the failure that somebody followed: the newest one before; without a time, the last, which ended the attempt."""
    return max(number for number, since in enumerate(begun) if at is None or since <= at)
