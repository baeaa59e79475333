"""Clue: victims name the peer that they lost.

Proves: the connection to that peer ended while the victim still needed it.
Cannot prove: why it ended; the peer may be a victim itself that ended a moment earlier.
Lies: gloo prints a port that maps to no rank and often a fellow victim's address; c10d store errors print garbage addresses;
barrier messages of all other ranks point at rank 0, which only collects. Such edges are marked innocent and count nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect, label, labels
from firstfault.correlate.weights import weight
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Fact, Who

MOST_STRANGERS = 2  # addresses that no line maps to a machine: many of them are a cascade along the ring and say nothing


def findings(window: Window) -> Iterator[Finding]:
    """Yield one finding for every peer that others name."""
    edges: dict[tuple[Suspect, str], dict[Suspect | None, Fact]] = defaultdict(dict)
    for fact in window.facts("peer-lost"):
        target = named(window, fact)
        victim = window.who(fact)
        edge = str(fact.values.get("edge", "weak"))
        if target is not None and target != victim and edge != "innocent":
            edges[target, edge].setdefault(victim, fact)
    strangers = {target for target, _ in edges if target not in window.dossiers and target.kind == "node"}
    for (target, edge), victims in sorted(edges.items()):
        if target in strangers and len(strangers) > MOST_STRANGERS:
            continue
        name = "peer-strong" if edge == "strong" and target not in strangers else "peer-weak"
        scale = min(len(victims), weight("peer-cap") / weight("peer-strong"))
        who = labels(sorted(one for one in victims if one is not None)) or "a peer"
        yield Finding(
            "named-by-peers",
            name,
            (target,),
            f"{who} lost the connection to {label(target)}",
            lines_of(*victims.values()),
            None,
            None,
            scale,
        )


def named(window: Window, fact: Fact) -> Suspect | None:
    """Return whom a lost-peer line names, as far as the roster can tell."""
    values = fact.values
    rank = values.get("peer_rank", values.get("peer_task"))
    if isinstance(rank, int):
        return window.roster.resolve(Who(rank=rank))
    local, node, address = values.get("peer_local_rank"), values.get("peer_node"), values.get("peer_address")
    if isinstance(local, int):
        return window.roster.resolve(Who(local_rank=local, node=fact.who.node), fact.stream)
    host = str(address).rsplit(":", 1)[0] if address else None
    return window.roster.resolve(Who(address=str(address) if address else None, node=str(node or host) if node or host else None))
